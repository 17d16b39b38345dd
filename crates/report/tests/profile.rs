//! What is told of small synthetic traces, as text.

#[path = "../../profile/tests/support/mod.rs"]
mod support;

use profile::{Filter, ObjectId, Predicate, Profile};
use report::{By, Compared, DetailReport, DiffReport, ProfileDetail, ProfileReport, Subject, TraceFacts, Wanted};
use support::{face_recognition, indexing, stream_clustering, web_server};
use trace::{About, SourceNote};

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
    TraceFacts::of("trace".into(), &about, lost, profile, "as the trace describes it".into())
}

fn report(profile: &Profile, filter: Vec<Predicate>, words: &[&str]) -> String {
    let view = profile.view(&Filter(filter));
    let filter = words.iter().map(ToString::to_string).collect();
    ProfileReport::of(&view, facts(profile), Wanted { top: 5, by: By::Cost, filter }).to_string()
}

fn detail(profile: &Profile, predicate: Predicate, subject: impl Fn(&profile::View) -> Option<Subject>) -> String {
    let (all, view) = (profile.view(&Filter::default()), profile.view(&Filter(vec![predicate])));
    let detail = ProfileDetail { top: 4, by: By::Samples, rows: 12, filter: Vec::new() };
    DetailReport::of(subject(&view).unwrap(), &view, all.tally(), facts(profile), detail).to_string()
}

/// No line is too long for a terminal of 120 columns.
fn checked(text: String) -> String {
    for line in text.lines() {
        assert!(line.chars().count() <= 118 && line.trim_end() == line, "{line}");
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
    let profile = support::profile(Vec::new(), Vec::new());
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
fn what_got_better_is_told_from_chance() {
    let (mut before, after) = (stream_clustering(), stream_clustering());
    for sample in &mut before.samples {
        sample.latency_ns = sample.latency_ns.map(|ns| 3.0 * ns);
    }
    // Of a second object there are too few samples to tell.
    before.samples.retain(|sample| sample.address > 0x7000_0000 || sample.time_ns % 32 == 0);
    let (before, after) = (before.profile(), after.profile());
    let (a, b) = (before.view(&Filter::default()), after.view(&Filter::default()));
    let (a, b) = (Compared { view: &a, trace: facts(&before) }, Compared { view: &b, trace: facts(&after) });
    insta::assert_snapshot!(checked(DiffReport::of(a, b, 6, Vec::new()).to_string()));
}

/// Reference values for what a text says of objects: those of the profile.
#[test]
fn json_has_all_that_the_text_has() {
    let profile = face_recognition().profile();
    let view = profile.view(&Filter::default());
    let wanted = Wanted { top: 5, by: By::Cost, filter: Vec::new() };
    let json = serde_json::to_value(ProfileReport::of(&view, facts(&profile), wanted)).unwrap();
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
