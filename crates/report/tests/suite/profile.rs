//! Reports of small synthetic traces, as text.

use crate::traces::{App, Trace, face_recognition, indexing, stream_clustering, web_server};
use machine::NodeId;
use profile::{Filter, ObjectId, Predicate, Profile};
use report::{
    By, Change, Compared, Controller, DetailReport, DiffReport, ProfileDetail, ProfileReport, Subject, TraceFacts,
    Wanted,
};
use trace::{About, AccessKind, Served, SourceNote, What};

fn facts(profile: &Profile) -> TraceFacts {
    let mut about = About::of_command(vec!["recognise".into(), "--faces".into(), "8".into()]);
    about.complete = true;
    about.simulated = true;
    about.sources.push(SourceNote {
        source: trace::Source::Lab,
        event: "l1 misses".into(),
        cannot_see: vec!["Accesses that the first-level cache serves.".into()],
    });
    about.lose("samples that the recorder dropped", 1234);
    let lost = about.lost.clone();
    TraceFacts::new("trace".into(), &about, lost, profile, "as the trace describes it".into())
}

fn report(profile: &Profile, filter: Vec<Predicate>, words: &[&str]) -> String {
    let view = profile.view(&Filter(filter));
    let filter = words.iter().map(ToString::to_string).collect();
    ProfileReport::new(&view, facts(profile), Wanted { top: 5, by: By::Cost, filter }).to_string()
}

fn detail(profile: &Profile, predicate: Predicate, subject: impl Fn(&profile::View) -> Option<Subject>) -> String {
    let (all, view) = (profile.view(&Filter::default()), profile.view(&Filter(vec![predicate])));
    let detail = ProfileDetail { top: 4, by: By::Samples, rows: 12, filter: Vec::new() };
    DetailReport::new(subject(&view).unwrap(), &view, all.tally(), facts(profile), detail).to_string()
}

/// Checks that no line is longer than those of a pipe.
fn checked(text: String) -> String {
    for line in text.lines() {
        assert!(line.chars().count() <= 100 && line.trim_end() == line, "{line}");
    }
    text
}

#[test]
fn a_matrix_that_all_read_is_to_be_replicated() {
    insta::assert_snapshot!(checked(report(&face_recognition().profile(), Vec::new(), &[])));
}

#[test]
fn a_saturated_array_is_to_be_interleaved() {
    insta::assert_snapshot!(checked(report(&stream_clustering().profile(), Vec::new(), &[])));
}

#[test]
fn several_processes_and_a_filter() {
    let profile = web_server().profile();
    insta::assert_snapshot!(checked(report(&profile, vec![Predicate::Remote], &["remote accesses"])));
}

#[test]
fn an_empty_trace_says_so() {
    let profile = crate::traces::profile(Vec::new(), Vec::new());
    insta::assert_snapshot!(checked(report(&profile, Vec::new(), &[])));
}

#[test]
fn an_object_in_detail() {
    let profile = face_recognition().profile();
    let (object, _) = profile.view(&Filter::default()).objects()[0];
    let text = detail(&profile, Predicate::Object(object), |view| Subject::object(view, object));
    insta::assert_snapshot!(checked(text));
    assert_eq!(Subject::object(&profile.view(&Filter::default()), ObjectId(9999)), None);
}

#[test]
fn names_of_threads_do_not_change_the_terminal() {
    let mut trace = face_recognition();
    trace.event(1, 3, 2, What::Named { name: "\u{1b}[31mred\u{7}".into(), exec: false });
    let profile = trace.profile();
    let (object, _) = profile.view(&Filter::default()).objects()[0];
    let text = detail(&profile, Predicate::Object(object), |view| Subject::object(view, object));
    assert!(text.contains("thread 3 ?[31mred?\n"), "{text}");
    assert!(!text.contains(|one: char| one.is_control() && one != '\n'), "{text:?}");
}

#[test]
fn a_thread_a_site_and_a_function_in_detail() {
    let profile = indexing().profile();
    let all = profile.view(&Filter::default());
    let ((thread, _), (site, _)) = (all.threads()[0], all.sites()[0]);
    let texts = [
        detail(&profile, Predicate::Thread(thread), |view| Subject::thread(view, thread)),
        detail(&profile, Predicate::OfSite(site), |view| Subject::site(view, site)),
        detail(&profile, Predicate::Function("transpose".into()), |view| Some(Subject::function(view, "transpose", 3))),
    ];
    insta::assert_snapshot!(checked(texts.join("\n----\n\n")));
}

#[test]
fn an_improvement_is_distinguished_from_chance() {
    let (mut before, after) = (stream_clustering(), stream_clustering());
    for sample in &mut before.samples {
        sample.latency_ns = sample.latency_ns.map(|ns| 3.0 * ns);
    }
    // The second object has too few samples.
    before.samples.retain(|sample| sample.address > 0x7000_0000 || sample.time_ns % 32 == 0);
    let (before, after) = (before.profile(), after.profile());
    let (a, b) = (before.view(&Filter::default()), after.view(&Filter::default()));
    let (a, b) = (Compared { view: &a, trace: facts(&before) }, Compared { view: &b, trace: facts(&after) });
    insta::assert_snapshot!(checked(DiffReport::new(a, b, 6, Vec::new()).to_string()));
}

/// The second trace has half the latency, and takes a fifth longer.
#[test]
fn a_slower_run_is_worse_although_its_accesses_are_faster() {
    let (mut before, mut after) = (stream_clustering(), stream_clustering());
    before.samples.iter_mut().for_each(|sample| sample.latency_ns = Some(220.0));
    after.samples.iter_mut().for_each(|sample| {
        sample.latency_ns = Some(110.0);
        sample.time_ns += sample.time_ns / 5;
    });
    let (before, after) = (before.profile(), after.profile());
    let (a, b) = (before.view(&Filter::default()), after.view(&Filter::default()));
    let compared = |run: bool| {
        let side = |view, profile| {
            let facts = facts(profile);
            let run_ns = facts.run_ns.filter(|_| run);
            Compared { view, trace: TraceFacts { run_ns, ..facts } }
        };
        DiffReport::new(side(&a, &before), side(&b, &after), 6, Vec::new())
    };
    let report = compared(true);
    assert_eq!(
        (report.overall, report.run_change, report.change),
        (Change::Worse, Some(Change::Worse), Change::Better)
    );
    let text = report.to_string();
    let headline: Vec<&str> = text.split("\n\n").next().unwrap().split_whitespace().collect();
    let headline = headline.join(" ");
    assert!(
        headline.starts_with("B is worse: its run took 20.0 % longer (")
            && headline.ends_with("although its accesses take 50.0 % less time (mean latency 110 ns, A 220 ns)"),
        "{headline}"
    );
    let unknown = compared(false);
    assert_eq!((unknown.overall, unknown.run_change), (Change::Better, None));
    let unknown = unknown.to_string();
    assert!(unknown.starts_with("B is better: its accesses take 50.0 % less time"), "{unknown}");
    assert!(text.contains("0.83 times as fast") && !unknown.contains("0.83 times as fast"), "{text}\n{unknown}");
}

#[test]
fn rates_are_of_the_time_that_is_looked_at() {
    let profile = face_recognition().profile();
    let (first, last) = profile.span_ns().unwrap();
    let all = facts(&profile);
    assert_eq!((all.from_ns, all.duration_ns), (first, last - first));
    // The last quarter, extending beyond the end.
    let from = last - (last - first) / 4;
    let view = profile.view(&Filter(vec![Predicate::Time(from..=u64::MAX)]));
    let wanted = Wanted { top: 5, by: By::Cost, filter: vec!["time".into()] };
    let report = ProfileReport::new(&view, all.clone().within((from, u64::MAX)), wanted);
    assert_eq!((report.trace.start_ns, report.trace.from_ns, report.trace.duration_ns), (first, from, last - from));
    let [accesses, bytes_per_s] = [|row: &Controller| row.counts.accesses, |row: &Controller| row.bytes_per_s.unwrap()]
        .map(|of| report.controllers.iter().map(of).sum::<f64>());
    let seconds = (last - from) as f64 / 1e9;
    assert!(accesses > 0.0 && (bytes_per_s - 64.0 * accesses / seconds).abs() < 1e-6 * bytes_per_s, "{bytes_per_s}");
    // Outside of the trace there are no rates.
    let beyond = all.within((last + 5, last + 9));
    assert_eq!((beyond.from_ns, beyond.duration_ns), (last, 0));
}

/// An array and two tables of one site, without samples.
fn without_samples() -> (Profile, TraceFacts) {
    let mut trace = Trace::new(&[1]);
    trace.allocate((1, 1, 0), 0x10_0000, 5 << 20, "makeMatrix");
    trace.allocate((1, 1, 0), 0x1000_0000, 0x3000, "table_new");
    trace.allocate((1, 2, 4), 0x2000_0000, 0x4000, "table_new");
    for (function, objects) in [("table_new", 12_345), ("handle", 1)] {
        let stack = trace.stacks.id(&["malloc", function, "main"].map(App::in_function));
        trace.event(1, 1, 0, What::Counted { objects, bytes: 16 * objects, stack });
    }
    let span = (1000, trace.time_ns - 1);
    let profile = trace.profile();
    let mut about = About::of_command(vec!["recognise".into()]);
    about.notes = vec!["no accesses to memory were sampled".into()];
    let facts = TraceFacts::new("trace".into(), &about, Vec::new(), &profile, "as the trace describes it".into());
    (profile, facts.with_records(span))
}

#[test]
fn without_samples_objects_are_ranked_by_size() {
    let (profile, facts) = without_samples();
    let view = profile.view(&Filter::default());
    let of = |filter: Vec<String>| ProfileReport::new(&view, facts.clone(), Wanted { top: 2, by: By::Samples, filter });
    let report = of(Vec::new());
    assert_eq!((report.objects.all, report.objects.first.len(), report.sites.all), (3, 2, 2));
    assert_eq!((report.sites.first[1].objects, report.sites.first[1].bytes), (2, 0x7000));
    insta::assert_snapshot!(checked(report.to_string()));
    // Filters select accesses, of which there are none.
    assert_eq!(of(vec!["loads".into()]).objects.all, 0);
    // In detail.
    let site = profile.site_of(ObjectId(2)).unwrap();
    let of_site = profile.view(&Filter(vec![Predicate::OfSite(site)]));
    let detail = ProfileDetail { top: 4, by: By::Cost, rows: 12, filter: Vec::new() };
    let subject = Subject::site(&of_site, site).unwrap();
    let told = DetailReport::new(subject, &of_site, view.tally(), facts.clone(), detail.clone());
    assert_eq!((told.facts.objects, told.objects.all), (2, 2));
    let of_object = profile.view(&Filter(vec![Predicate::Object(ObjectId(1))]));
    let subject = Subject::object(&of_object, ObjectId(1)).unwrap();
    let object = DetailReport::new(subject, &of_object, view.tally(), facts, detail);
    assert_eq!(object.facts.objects, 1);
    insta::assert_snapshot!(checked(format!("{told}\n----\n\n{object}")));
}

#[test]
fn accesses_of_unknown_kind_may_have_been_writes() {
    let mut trace = face_recognition();
    let told = |trace: crate::traces::Trace| {
        let profile = trace.profile();
        let (object, _) = profile.view(&Filter::default()).objects()[0];
        detail(&profile, Predicate::Object(object), |view| Subject::object(view, object))
    };
    trace.samples.iter_mut().for_each(|sample| sample.kind = AccessKind::Unknown);
    let nothing = told(trace);
    assert!(
        !nothing.contains("read only") && nothing.contains("0 reads, 0 writes, ") && nothing.contains(" unknown\n"),
        "{nothing}"
    );
    let mut trace = face_recognition();
    trace.samples.iter_mut().for_each(|sample| sample.kind = AccessKind::Load);
    let reads = told(trace);
    assert!(reads.contains("read only       no writes observed") && !reads.contains("unknown,"), "{reads}");
}

#[test]
fn without_latencies_a_difference_is_one_of_shares() {
    let mut trace = face_recognition();
    trace.samples.iter_mut().for_each(|sample| sample.latency_ns = None);
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let side = || Compared { view: &view, trace: facts(&profile) };
    let text = DiffReport::new(side(), side(), 6, Vec::new()).to_string();
    let row = text.lines().find(|line| line.starts_with("  local access ratio")).unwrap();
    assert!(row.ends_with("same") && !text.contains("mean latency"), "{text}");
}

/// Where samples stand for different numbers of accesses, nodes have shares of accesses.
#[test]
fn nodes_have_shares_of_accesses() {
    let mut trace = face_recognition();
    // Node 0's CPUs: a tenth of the accesses that their samples would stand for.
    trace.samples.iter_mut().filter(|sample| sample.cpu.0 < 2).for_each(|sample| sample.weight /= 10.0);
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let text = report(&profile, Vec::new(), &[]);
    let matrix = text.lines().skip_while(|line| !line.contains("from \\ to"));
    let row: Vec<&str> = matrix.take(2).last().unwrap().split_whitespace().collect();
    let pairs = view.flow().facts().nodes;
    let all: f64 = pairs.iter().map(|pair| pair.counts.accesses).sum();
    let own = pairs.iter().find(|pair| pair.from.0 == 0 && pair.to.0 == 0).unwrap();
    assert_eq!(row[2..4].join(" "), machine::number::percent(own.counts.accesses / all), "{text}");
}

/// Latencies that are not known count as the mean in costs and in their order.
#[test]
fn rankings_are_in_the_order_of_their_column() {
    let mut trace = face_recognition();
    let matrix = 0x7f00_0000_0000..0x7f00_0000_0000 + (15 << 20);
    trace
        .samples
        .iter_mut()
        .filter(|sample| matrix.contains(&sample.address))
        .for_each(|sample| sample.latency_ns = None);
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    for by in [By::Cost, By::RemoteCost] {
        let wanted = Wanted { top: 9, by, filter: Vec::new() };
        let rows = ProfileReport::new(&view, facts(&profile), wanted).objects.first;
        let cost = |counts: &profile::Counts| match by {
            By::Cost => counts.memory_time_share.unwrap(),
            _ => counts.remote_time_share.unwrap(),
        };
        let costs: Vec<f64> = rows.iter().map(|row| cost(&row.counts)).collect();
        assert!(costs[0] > 0.5 && costs.is_sorted_by(|a, b| a >= b), "{by:?}: {costs:?}");
    }
}

/// Shares are those in the column of that name of `nearside report`.
#[test]
fn the_share_of_all_is_of_accesses_in_a_difference_as_well() {
    let profile = face_recognition().profile();
    let view = profile.view(&Filter::default());
    let side = || Compared { view: &view, trace: facts(&profile) };
    let report = DiffReport::new(side(), side(), 1, Vec::new());
    let counts = report.sites[0].a.unwrap().counts;
    assert!((counts.share - counts.memory_time_share.unwrap()).abs() > 1e-3, "{counts:?}");
    let text = report.to_string();
    let row = text.lines().skip_while(|line| !line.starts_with("  sites")).nth(1).unwrap();
    assert!(row.contains(&machine::number::percent(counts.share)), "{text}");
}

/// A line that another core's cache has says nothing of the memory that it belongs to.
#[test]
fn lines_of_other_cores_are_in_no_table_of_memory() {
    let mut trace = face_recognition();
    for (number, sample) in trace.samples.iter_mut().enumerate().filter(|(number, _)| number % 3 > 0) {
        (sample.served, sample.node) = (Some(Served::Peer), Some(NodeId(if number % 3 == 1 { 0 } else { 2 })));
    }
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let wanted = Wanted { top: 9, by: By::Cost, filter: Vec::new() };
    let report = ProfileReport::new(&view, facts(&profile), wanted);
    for thread in &report.threads.first {
        let reached = thread.counts.local_accesses + thread.counts.remote_accesses;
        assert!((thread.memory_on.values().sum::<f64>() - reached).abs() < 1e-6, "{thread:?}");
        assert!((thread.ran_on.values().sum::<f64>() - thread.counts.accesses).abs() < 1e-6, "{thread:?}");
    }
    for (what, counts) in (report.nodes.iter().map(|pair| ("pair", pair.counts)))
        .chain(report.controllers.iter().map(|controller| ("controller", controller.counts)))
    {
        assert_eq!(counts.load_samples + counts.store_samples, counts.samples, "{what}");
    }
    let side = || Compared { view: &view, trace: facts(&profile) };
    let diff = DiffReport::new(side(), side(), 99, Vec::new());
    let all: f64 = report.nodes.iter().map(|pair| pair.counts.accesses).sum();
    for pair in &report.nodes {
        let found = diff.nodes.iter().find(|found| (found.from, found.to) == (pair.from, pair.to)).unwrap();
        assert!((found.a_share - pair.counts.accesses / all).abs() < 1e-9, "{found:?} {pair:?}");
    }
    let used = diff.threads.iter().flat_map(|of| of.a.as_ref().unwrap().memory_on.values());
    assert!((used.sum::<f64>() - all).abs() < 1e-6);
}

/// The text agrees with the profile's values.
#[test]
fn json_has_all_that_the_text_has() {
    let profile = face_recognition().profile();
    let view = profile.view(&Filter::default());
    let wanted = Wanted { top: 5, by: By::Cost, filter: Vec::new() };
    let json = serde_json::to_value(ProfileReport::new(&view, facts(&profile), wanted)).unwrap();
    let text = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {json:#}")).to_string();
    assert_eq!(text("/verdict/problem"), "\"distance\"");
    assert_eq!(text("/advice/0/action"), "\"replicate\"");
    assert_eq!(text("/objects/first/0/label"), "\"makeMatrix+0x59\"");
    assert_eq!(text("/objects/first/0/facts/first_writer/tid"), "1");
    assert_eq!((text("/objects/all"), text("/threads/all")), ("9".into(), "8".into()));
    assert_eq!(text("/trace/lost/0/count"), "1234");
    assert_eq!(text("/controllers/0/node"), "0");
    assert_eq!(text("/threads/first/0/ran_on").matches(':').count(), 1);
    for pointer in
        ["/sites/first/0/called_from", "/functions/first/0/remote_time_share", "/nodes/0/from", "/counts/samples"]
    {
        text(pointer);
    }
}
