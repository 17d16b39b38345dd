//! Labels of code and sites.

use crate::code::Code;
use crate::ids::{CodeId, ObjectId, SiteId};
use crate::object::ObjectKind;
use crate::profile::Profile;
use crate::site::{Site, file_name};

impl Profile {
    /// The label of a code location: `makeMatrix+0x59`, or the file and offset if no symbol names it.
    pub fn code_label(&self, id: CodeId) -> String {
        let Some(Code { file, offset, function, .. }) = self.code(id) else { return "?".to_owned() };
        match (function, file.and_then(|file| self.file(file))) {
            (Some(function), _) => format!("{}+{:#x}", function.name, offset.saturating_sub(function.start)),
            (None, Some(file)) => format!("{}+{offset:#x}", file_name(&file.name)),
            (None, None) => format!("{offset:#x}"),
        }
    }

    /// The name of the function that contains a code location, or its file's in brackets.
    pub fn function_label(&self, id: CodeId) -> String {
        let Some(Code { file, function, .. }) = self.code(id) else { return "?".to_owned() };
        match (function, file.and_then(|file| self.file(file))) {
            (Some(function), _) => function.name.to_string(),
            (None, Some(file)) => format!("[{}]", file_name(&file.name).trim_matches(['[', ']'])),
            (None, None) => "[unknown]".to_owned(),
        }
    }

    /// The label of a site: the allocating code, a region, a variable, a section and its file, or a file.
    pub fn site_label(&self, id: SiteId) -> String {
        let Some(Site { kind, code, name, file }) = self.site(id) else { return "?".to_owned() };
        let file = file.and_then(|file| self.file(file)).map_or("", |file| &file.name);
        let name = name.as_deref().unwrap_or("");
        match kind {
            ObjectKind::Heap => code.map_or_else(|| "allocated, site unknown".to_owned(), |code| self.code_label(code)),
            ObjectKind::Static => format!("{name} ({})", file_name(file)),
            ObjectKind::BinarySection if name.is_empty() => file_name(file).to_owned(),
            ObjectKind::BinarySection => format!("{name} of {}", file_name(file)),
            ObjectKind::Region if name.is_empty() => "region without a name".to_owned(),
            ObjectKind::Region | ObjectKind::MappedFile => name.to_owned(),
            ObjectKind::Stacks => "[stacks]".to_owned(),
            ObjectKind::Unknown if name.is_empty() => "unknown".to_owned(),
            ObjectKind::Unknown => format!("unknown in {name}"),
        }
    }

    /// The site of an object.
    pub fn site_of(&self, object: ObjectId) -> Option<SiteId> {
        self.sites_of_objects().get(object.index()).copied()
    }
}
