//! Tests of what grants need of control hardware.

use super::*;
use crate::grants::devices::tests::DEVICE;
use crate::grants::lab_control::offer_of;
use crate::grants::resctrl_control::ResctrlControl;
use crate::grants::resctrl_kernel::{self, Kernel, schemata};
use crate::grants::{Setting, tidy};
use crate::journal::Journal;
use machine::presets;
use model::ControlHardware;
use reserve::{Asker, CacheIsolation, Control, Isolation, Memory, ReadWrite, Request, Rules};
use std::sync::Arc;

fn machine() -> machine::Machine {
    presets::find("magny-cours-4p-control").unwrap()
}

fn ledger(throttle: Option<Throttle>) -> Ledger {
    let control = Control::of(&machine(), throttle);
    Ledger::new(Arc::new(Facts::new(machine(), control)), Rules::default())
}

fn on_node_0(cache: CacheIsolation, controller: bool) -> Request {
    Request {
        isolate: Isolation { core: true, cache, controller, route: false },
        memory: Memory::Node(NodeId(0)),
        cores: reserve::Cores::These("0".parse().unwrap()),
        bandwidth: Some(ReadWrite { read: 5.9e9, write: 0.0 }),
        ..Request::default()
    }
}

/// The words, as texts.
fn words(ledger: &Ledger, now: &[u64]) -> Vec<String> {
    let own: Vec<Grant> = ledger.grants().cloned().collect();
    let now = now.iter().enumerate().map(|(cpu, class)| (ControlWord::Class { cpu }, class.to_string())).collect();
    texts(Wanted::new(&offer(), ledger).words(&own, &now).unwrap())
}

fn texts(words: Words) -> Vec<String> {
    words.into_iter().map(|(word, text)| format!("{} {text}", word.path(Interface::Lab).display())).collect()
}

fn offer() -> Offer {
    offer_of(&ControlHardware::of(&machine()).unwrap())
}

#[test]
fn ways_are_taken_from_the_rest_and_the_rest_is_limited() {
    let empty = ledger(None);
    assert_eq!(words(&empty, &[0; 48]), [""; 0]);
    let admit = |ledger: &Ledger, request| ledger.admit(&[request], &Asker::default()).unwrap().after;
    let guarded = admit(&empty, on_node_0(CacheIsolation::Shared, true));
    // 4.25 GB/s for five CPUs, in steps of 1/8 GB/s.
    assert_eq!(words(&guarded, &[0; 48]), ["/lab-control/cpu-0/class 1", "/lab-control/class-0/limit-0 750000000"]);
    let both = admit(&empty, on_node_0(CacheIsolation::Ways(20), true));
    let of_both = [
        "/lab-control/cpu-0/class 2",
        "/lab-control/class-0/ways-0 0xfffff",
        "/lab-control/class-1/ways-0 0xfffff",
        "/lab-control/class-2/ways-0 0xfffff00000",
        "/lab-control/class-0/limit-0 750000000",
    ];
    assert_eq!(words(&both, &[0; 48]), of_both);
    // It keeps its class, and another one gets the next.
    let mut now = [0; 48];
    now[0] = 3;
    assert!(words(&both, &now).contains(&"/lab-control/cpu-0/class 3".to_owned()));
    let mut other = on_node_0(CacheIsolation::Ways(8), false);
    other.cores = reserve::Cores::These("1".parse().unwrap());
    other.bandwidth = Some(ReadWrite { read: 0.3e9, write: 0.0 });
    let two = words(&admit(&both, other), &now);
    for word in ["cpu-1/class 2", "class-2/ways-0 0xff000", "class-0/ways-0 0xfff"] {
        assert!(two.contains(&format!("/lab-control/{word}")), "{word}: {two:?}");
    }
}

#[test]
fn a_limit_that_another_tool_has_set_for_the_class_of_a_grant_is_lifted() {
    let guarded = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap().after;
    let own: Vec<Grant> = guarded.grants().cloned().collect();
    let foreign = |cache| (ControlWord::Limit { class: UNLIMITED, cache }, "125000000".to_owned());
    let now = BTreeMap::from([foreign(0), foreign(1)]);
    let words = texts(Wanted::new(&offer(), &guarded).words(&own, &now).unwrap());
    assert!(words.contains(&"/lab-control/class-1/limit-0 max".to_owned()), "{words:?}");
    assert!(!words.iter().any(|word| word.contains("class-1/limit-1")), "the grant has no CPU there: {words:?}");
}

#[test]
fn without_the_hardwares_limits_only_ways_are_set() {
    let ledger = ledger(Some(Throttle::Duty));
    let after = ledger.admit(&[on_node_0(CacheIsolation::Ways(8), true)], &Asker::default()).unwrap().after;
    assert!(words(&after, &[0; 48]).iter().all(|word| !word.contains("limit")));
}

fn on(cpu: &str, node: u32, isolate: Isolation) -> Request {
    Request {
        isolate,
        memory: Memory::Node(NodeId(node)),
        cores: reserve::Cores::These(cpu.parse().unwrap()),
        bandwidth: Some(ReadWrite { read: 0.3e9, write: 0.0 }),
        ..Request::default()
    }
}

const CORE: Isolation = Isolation { core: true, cache: CacheIsolation::Shared, controller: false, route: false };

#[test]
fn a_grant_that_shares_its_cpus_has_what_the_rest_has() {
    let guarded = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap().after;
    let shared = guarded.admit(&[on("1", 0, Isolation::default())], &Asker::default()).unwrap().after;
    let words = words(&shared, &[0; 48]);
    assert!(words.iter().any(|word| word.contains("class-0/limit-0")), "{words:?}");
    assert!(words.iter().all(|word| !word.contains("cpu-1/")), "{words:?}");
    let left = shared.forecast().rest_limit[&NodeId(0)] / 5.0;
    let limit = left as u64 / 125_000_000 * 125_000_000;
    assert!(words.contains(&format!("/lab-control/class-0/limit-0 {limit}")), "{words:?}");
}

/// What a process writes for the last of these grants, where others have written the words of those before, or limit
/// CPU time.
fn alone(requests: &[Request], by_hardware: bool) -> Result<Vec<String>, HardwareError> {
    let (offer, mut ledger, mut now) = (offer(), ledger(None), Words::new());
    for (index, request) in requests.iter().enumerate() {
        let admitted = ledger.admit(std::slice::from_ref(request), &Asker::default()).unwrap();
        ledger = admitted.after;
        let wanted = Wanted::new(&offer, &ledger).words_alone(&admitted.grants[0], &now, Interface::Lab);
        if index + 1 == requests.len() {
            return wanted.map(texts);
        }
        now.extend(wanted.unwrap().into_iter().filter(|_| by_hardware));
    }
    Ok(Vec::new())
}

#[test]
fn a_process_without_an_agent_writes_only_what_it_alone_changes() {
    let guarded = on_node_0(CacheIsolation::Shared, true);
    let own = ["/lab-control/cpu-0/class 1", "/lab-control/class-0/limit-0 750000000"];
    assert_eq!(alone(std::slice::from_ref(&guarded), true).unwrap(), own);
    // Nothing of others' limits: not of this node, whichever ends first, and not of another one.
    assert_eq!(alone(&[guarded.clone(), on("1", 0, Isolation::default())], true).unwrap(), [""; 0]);
    let of_node_1 = alone(&[guarded.clone(), on("6", 1, Isolation { controller: true, ..CORE })], true).unwrap();
    assert!(of_node_1.iter().any(|word| word.contains("class-0/limit-1 ")), "{of_node_1:?}");
    assert!(of_node_1.iter().all(|word| !word.contains("limit-0 ")), "{of_node_1:?}");
    // Nor the limit of a grant whose process limits CPU time.
    let beside = alone(&[guarded.clone(), on("1", 0, CORE)], false).unwrap();
    assert!(beside.iter().all(|word| !word.contains("limit")), "{beside:?}");
    let refused = |requests: &[Request]| alone(requests, true).unwrap_err().to_string();
    for isolate in [CORE, Isolation { controller: true, ..CORE }] {
        let refused = refused(&[guarded.clone(), on("1", 0, isolate)]);
        assert!(refused.contains("has set /lab-control/class-0/limit-0 of the control hardware to 750"), "{refused}");
    }
    let refused = refused(&[on("1", 0, CORE), guarded]);
    assert!(refused.contains("grant 1 has CPUs 1, which the limits of the rest would slow"), "{refused}");
}

#[test]
fn ways_of_a_cache_that_the_hardware_does_not_have_are_refused() {
    let ledger = ledger(None);
    let after = ledger.admit(&[on_node_0(CacheIsolation::Ways(8), false)], &Asker::default()).unwrap().after;
    let mut other = offer();
    other.caches = vec!["0-11".parse().unwrap()];
    let own: Vec<Grant> = after.grants().cloned().collect();
    let refused = Wanted::new(&other, &after).words(&own, &Words::new()).unwrap_err().to_string();
    assert!(refused.starts_with("grant 1 has ways of the last-level cache of CPUs 0-5"), "{refused}");
}

#[test]
fn where_the_hardwares_limits_are_too_coarse_the_rest_has_the_least() {
    let mut machine = machine();
    machine.control.as_mut().unwrap().bandwidth_step_bytes_per_s = Some(2e9);
    let offer = offer_of(&ControlHardware::of(&machine).unwrap());
    let admitted = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap();
    let wanted = Wanted::new(&offer, &admitted.after);
    let words = wanted.words(&[], &Words::new()).unwrap();
    assert_eq!(words[&ControlWord::Limit { class: REST, cache: 0 }], "2000000000");
    let TooFine { node, least, .. } = wanted.limits().1[0];
    assert_eq!((node, least), (NodeId(0), 2_000_000_000));
    let on = |node, left| TooFine { node: NodeId(node), left, least };
    let had = [on(0, 5), on(1, 5)];
    assert_eq!(TooFine::worse(&had, &[on(0, 5), on(1, 6)]), None);
    assert_eq!(TooFine::worse(&had, &[on(0, 5), on(1, 4)]), Some(on(1, 4)));
    assert_eq!(TooFine::worse(&had, &[on(2, 5)]), Some(on(2, 5)));
    // A new grant is refused.
    let refused = wanted.words_alone(&admitted.grants[0], &Words::new(), Interface::Lab).unwrap_err().to_string();
    assert!(refused.contains("each CPU of node 0") && refused.contains("least limit is 2000000000"), "{refused}");
}

/// Magny-Cours with the resctrl of another vendor, which is the control hardware of this thread from now on.
fn resctrl(vendor: &str, info: &[(&str, &str)], mask: &str, limit: u32) -> (Kernel, Hardware) {
    let caches: Vec<(u32, String)> = (0..8).map(|cache| (cache, format!("{}-{}", cache * 6, cache * 6 + 5))).collect();
    let caches: Vec<(u32, &str)> = caches.iter().map(|(cache, cpus)| (*cache, cpus.as_str())).collect();
    let all = |value: &str| (0..8).map(|cache| format!("{cache}={value}")).collect::<Vec<_>>().join(";");
    let text = format!("    MB:{}\n    L3:{}\n", all(&limit.to_string()), all(mask));
    let kernel = Kernel::of(resctrl_kernel::machine(vendor, info, &text, &caches), 8, true);
    let device: &'static ResctrlControl = Box::leak(Box::new(ResctrlControl::new(kernel.resctrl()).unwrap()));
    DEVICE.set(Some(device));
    (kernel, Hardware(device))
}

const INFO: [(&str, &str); 7] = [
    ("L3/cbm_mask", "ffff"),
    ("L3/min_cbm_bits", "1"),
    ("L3/num_closids", "8"),
    ("MB/bandwidth_gran", "1"),
    ("MB/min_bandwidth", "0"),
    ("MB/num_closids", "8"),
    ("L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes"),
];

/// A ledger with a grant of 4 ways and a guarded controller.
fn guarded(hardware: Hardware) -> (Ledger, Vec<Grant>) {
    let mut empty = ledger(None);
    Arc::make_mut(&mut empty.facts).control.ways = hardware.ways();
    let admitted = empty.admit(&[on_node_0(CacheIsolation::Ways(4), true)], &Asker::default()).unwrap();
    (admitted.after, admitted.grants)
}

fn set(journal: &mut Journal, settings: &BTreeMap<PathBuf, String>) {
    for (path, value) in settings {
        journal.will_write(path, value).unwrap();
        Setting::at(path).set(value).unwrap();
    }
}

/// A guarded grant with ways of its own, whose settings are in force on AMD's hardware.
struct CarriedOut {
    kernel: Kernel,
    hardware: Hardware,
    ledger: Ledger,
    grants: Vec<Grant>,
    journal: Journal,
    folder: tempfile::TempDir,
}

fn carried_out() -> CarriedOut {
    let (kernel, hardware) = resctrl("vendor_id\t: AuthenticAMD", &INFO, "ffff", 2048);
    let (ledger, grants) = guarded(hardware);
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path(), "grant").unwrap();
    let settings = hardware.settings_alone(&ledger, &grants[0]).unwrap();
    set(&mut journal, &settings);
    CarriedOut { kernel, hardware, ledger, grants, journal, folder }
}

#[test]
fn a_grant_is_carried_out_by_resctrl_and_undone() {
    let CarriedOut { kernel, hardware, ledger, grants, journal, folder: _folder } = carried_out();
    // 4.25 GB/s are 34 eighths of a GB/s.
    let value = |group: &str, resource: &str| schemata(&kernel, group).value(resource, 0);
    assert_eq!((value("", "MB"), value("", "L3"), value("nearside-1", "L3")), (Some(34), Some(0xfff), Some(0xfff)));
    assert_eq!((value("nearside-2", "MB"), value("nearside-2", "L3")), (Some(2048), Some(0xf000)));
    assert_eq!(kernel.resctrl().cpus("nearside-2").unwrap().to_string(), "0");
    // Another process is refused, as is one where another tool has the CPU.
    let alone = hardware.settings_alone(&ledger, &grants[0]).unwrap_err().to_string();
    assert!(alone.contains("has CPUs 0: remove it"), "{alone}");
    let mut by_time = ledger.clone();
    Arc::make_mut(&mut by_time.facts).control.throttle = Throttle::Duty;
    by_time.release(grants[0].id);
    let plain = by_time.admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap();
    assert!(hardware.settings_alone(&plain.after, &plain.grants[0]).unwrap().is_empty());
    // What another tool has changed since stays.
    let resctrl = kernel.resctrl();
    resctrl.set_share("", "MB", 0, 16).unwrap();
    let put_back = journal.restore();
    assert_eq!((put_back.theirs, put_back.failed.as_slice()), (1, [].as_slice()), "{put_back:?}");
    assert_eq!((value("", "MB"), value("", "L3"), resctrl.groups().unwrap().len()), (Some(16), Some(0xffff), 0));
    DEVICE.set(None);
}

#[test]
fn resctrl_that_is_unmounted_meanwhile_is_named_and_leaves_nothing_to_undo() {
    let CarriedOut { kernel, hardware, ledger, grants, journal, folder: _folder } = carried_out();
    kernel.unmount();
    let said = hardware.settings_alone(&ledger, &grants[0]).unwrap_err().to_string();
    assert!(said.starts_with("cannot read the settings of the control hardware: "), "{said}");
    // The kernel has put everything back by itself.
    let put_back = journal.restore();
    assert_eq!((put_back.theirs, put_back.switches.len()), (0, 0), "{put_back:?}");
    DEVICE.set(None);
}

#[test]
fn a_group_that_a_killed_process_made_or_another_tool_removed_is_no_trouble() {
    let CarriedOut { kernel, journal, folder: _folder, .. } = carried_out();
    let resctrl = kernel.resctrl();
    resctrl.remove_group("nearside-2").unwrap();
    resctrl.make_group("nearside-3").unwrap();
    let put_back = journal.restore();
    assert_eq!((put_back.theirs, put_back.failed.as_slice()), (0, [].as_slice()), "{put_back:?}");
    assert_eq!((resctrl.groups().unwrap(), schemata(&kernel, "").value("MB", 0)), (Vec::new(), Some(2048)));
    resctrl.make_group("nearside-1").unwrap();
    tidy().unwrap();
    assert_eq!(resctrl.groups().unwrap().len(), 0);
    DEVICE.set(None);
}

#[test]
fn percents_follow_what_is_measured() {
    let intel: Vec<(&str, &str)> = INFO[..3]
        .iter()
        .copied()
        .chain([INFO[5], INFO[6]])
        .chain([("MB/bandwidth_gran", "10"), ("MB/min_bandwidth", "10")])
        .collect();
    let (kernel, hardware) = resctrl("vendor_id\t: GenuineIntel", &intel, "ffff", 100);
    let (mut ledger, mut grants) = guarded(hardware);
    // A bound that leaves more than the least limit.
    grants[0].request.most_slowdown = 0.5;
    ledger.adopt(grants[0].clone());
    let limit: PathBuf = "/resctrl/class-0/limit-0".into();
    let percent = |settings: &BTreeMap<PathBuf, String>| settings.get(&limit).cloned();
    let first = hardware.settings(&ledger, &grants).unwrap();
    let share = Wanted::new(hardware.0.offer(), &ledger).limits().0[&0];
    assert_eq!((percent(&first).as_deref(), share.cpus), (Some("20"), 5), "{share:?}");
    let device = |value: &str| Setting::at(&limit).set(value).unwrap();
    device("20");
    let (mut corrections, began) = (Corrections::default(), Instant::now());
    let mut bytes = 0.0;
    let mut second = |seconds: u64, part: f64| {
        bytes += part * share.bytes_per_s();
        kernel.put("mon_data/mon_L3_00/mbm_total_bytes", &format!("{bytes:.0}\n"));
        let at = began + std::time::Duration::from_secs(seconds);
        hardware.correct(&ledger, &mut corrections, at).unwrap()
    };
    assert!(second(0, 0.0).is_empty());
    assert_eq!(percent(&second(1, 1.6)).as_deref(), Some("10"));
    device("10");
    assert_eq!(percent(&second(1, 9.0)), None, "the period is not over");
    // What the loop has made stricter stays when other grants come and go.
    assert_eq!(percent(&hardware.settings(&ledger, &grants).unwrap()).as_deref(), Some("10"));
    kernel.put("mon_data/mon_L3_00/mbm_total_bytes", "Unavailable\n");
    let at = began + std::time::Duration::from_secs(2);
    assert!(hardware.correct(&ledger, &mut corrections, at).unwrap().is_empty());
    DEVICE.set(None);
}
