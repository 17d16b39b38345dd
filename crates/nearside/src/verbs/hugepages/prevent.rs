//! `nearside hugepages cure --from`: what a recording of the program found is kept on small pages from its allocation on.

use crate::open_trace::{OpenTrace, Reading};
use crate::options::loaded_first;
use crate::output;
use crate::output::json;
use crate::output::scratch::scratch_folder;
use crate::verbs::record::program::Program;
use agent::{CountedFrom, KnownBy, SmallPartCounts, SmallParts};
use linux::program_file;
use observe::{Followed, objects};
use profile::{Anchor, File, Filter, ObjectBorders, ObjectKind, Profile, borders};
use report::{HugePagesReport, PreventionReport};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trace::FileIdentities;

/// Interval between two checks of the program; its end is noticed at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What is asked for.
pub struct Prevention<'a> {
    /// The recording.
    pub trace: &'a Path,
    /// The program and its arguments.
    pub command: &'a [OsString],
    pub dry_run: bool,
    pub quiet: bool,
    /// Where the result goes as JSON.
    pub json: Option<&'a Path>,
}

impl Prevention<'_> {
    /// Runs the program. Returns its exit code.
    pub fn run(&self) -> Result<u8, Box<dyn Error>> {
        let recorded = Reading::default().read(self.trace)?;
        let (mut report, parts) = plan(&recorded);
        report.dry_run = self.dry_run;
        report.why_not = why_not(&recorded.profile, self.command.first(), &parts);
        report.applied = !self.dry_run && report.why_not.is_none() && !parts.is_empty();
        drop(recorded);
        let scratch = scratch_folder()?;
        let rules = if report.applied { Some(parts.write(scratch.path())?) } else { None };
        let mut variables: Vec<(&str, OsString)> = Vec::new();
        if let Some(rules) = &rules {
            variables.extend(loaded_first::environment(objects::LIBRARY, objects::LIBRARY_VARIABLE)?);
            let (name, path) = rules.variable();
            variables.push((name, path.into()));
        }
        let mut program = Program::start(self.command, |command| {
            command.envs(variables);
        })?;
        while !program.is_over() {
            program.wait(POLL_INTERVAL);
        }
        program.status()?;
        if let Some(rules) = &rules {
            let SmallPartCounts { unmet, met, kept, refused } = rules.counts()?;
            report = PreventionReport { unmet, met, kept_small: kept, failed: refused, ..report };
        }
        if let Some(json) = self.json {
            output::write_to(&json::document(&report)?, json)?;
        }
        if !self.quiet {
            // With standard error closed there is nowhere to report this.
            let _ = write!(std::io::stderr(), "{report}");
        }
        Ok(program.exit_code())
    }
}

/// What a recording asks for.
fn plan(recorded: &OpenTrace) -> (PreventionReport, SmallParts) {
    let profile = &recorded.profile;
    let found = HugePagesReport::new(&profile.view(&Filter::default()), recorded.facts.clone(), 0);
    let (mut parts, mut left) = (SmallParts::default(), BTreeMap::<String, u64>::new());
    let mut huge_pages = 0;
    for of_object in borders(profile, &found.blocks) {
        let ObjectBorders { object, anchor, borders, .. } = &of_object;
        let why = match (known_by(profile, &of_object), profile.objects().get(object.0 as usize)) {
            (Ok(known), Some(object)) => {
                if parts.add(known, &(object.start..object.start + object.bytes), from(*anchor), borders) {
                    huge_pages += of_object.huge_pages;
                    continue;
                }
                "they have too many parts"
            }
            (Err(why), _) => why,
            (_, None) => continue,
        };
        *left.entry(why.to_owned()).or_default() += 1;
    }
    let objects = parts.len() as u64;
    (PreventionReport { verdict: found.verdict, objects, huge_pages, left, ..PreventionReport::default() }, parts)
}

fn from(anchor: Anchor) -> CountedFrom {
    match anchor {
        Anchor::Start => CountedFrom::Start,
        Anchor::FirstHugePage => CountedFrom::FirstHugePage,
        Anchor::Unknown => CountedFrom::Unknown,
    }
}

/// How another run of the program knows an object.
fn known_by(profile: &Profile, of: &ObjectBorders) -> Result<KnownBy, &'static str> {
    let object = profile.objects().get(of.object.0 as usize).ok_or("they are not known")?;
    let named = |name: Option<&str>| name.map(|name| KnownBy::Name(name.to_owned())).ok_or("they have no name");
    match object.kind {
        ObjectKind::Region => named(object.name.as_deref()),
        ObjectKind::MappedFile => named(object.file.and_then(|file| profile.file(file)).map(|file| &*file.name)),
        ObjectKind::Heap => {
            let site = profile.site_frames(of.object).ok_or("the code that allocated them is not known")?;
            let build_id = profile.file(site.file).and_then(build_id);
            let build_id = build_id.ok_or("the file of the code that allocated them has no build ID")?.to_vec();
            Ok(KnownBy::Site { build_id, offsets: site.offsets, frames: site.frames })
        }
        ObjectKind::Static | ObjectKind::BinarySection | ObjectKind::Stacks => {
            Err("they are variables or stacks, which no call allocates")
        }
        ObjectKind::Unknown => Err("the recording does not say what they are: record without --no-objects"),
    }
}

fn build_id(file: &File) -> Option<&[u8]> {
    file.identity.as_ref()?.build_id.as_deref()
}

/// Why a program is not that of the recording. One that starts others may be a script, whose programs are known by their
/// builds.
fn why_not(profile: &Profile, program: Option<&OsString>, parts: &SmallParts) -> Option<String> {
    let path = program_file(program?, std::env::var_os("PATH").as_deref())?;
    let path: PathBuf = std::fs::canonicalize(path).ok()?;
    let name: std::sync::Arc<str> = path.to_str()?.into();
    let id = FileIdentities::default().of(&name)?.build_id?;
    if parts.is_empty() || profile.files().iter().any(|file| build_id(file) == Some(&*id)) {
        return None;
    }
    let same_name = |file: &&File| Path::new(&*file.name).file_name() == path.file_name() && build_id(file).is_some();
    let other = profile.files().iter().find(same_name)?;
    Some(format!("{} is another build than the recorded {}: record it again", path.display(), other.name))
}
