//! The modules of a folder must not depend on each other in a cycle, not even through others. The folder's
//! own file, `lib.rs` or `mod.rs`, counts as one of the modules.
//!
//! So a crate can be read from the bottom up, and a name is imported from the module that defines it, never
//! from a file that re-exports it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use cargo_metadata::{Metadata, Package, TargetKind};

use super::paths::{Arrow, Sources};

/// Suites: their files may share helpers in any direction.
const LEFT_OUT: &[&str] = &["lockkeeper-tests", "lockkeeper-virtual", "lockkeeper-hot-paths"];

/// One line for each import in the wrong direction.
pub(super) fn check(metadata: &Metadata) -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for package in &metadata.packages {
        if LEFT_OUT.contains(&package.name.as_str()) {
            continue;
        }
        offences.extend(check_package(package)?);
    }
    Ok(offences)
}

fn check_package(package: &Package) -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for target in &package.targets {
        let is_shipped =
            target.kind.iter().any(|kind| matches!(kind, TargetKind::Lib | TargetKind::Bin));
        if is_shipped {
            let sources = Sources::read(target.src_path.as_std_path())?;
            offences.extend(judge(&sources));
        }
    }
    Ok(offences)
}

/// A module of a folder, the modules that it uses there, and the imports. The folder's own file, `lib.rs` or
/// `mod.rs`, counts as a module.
type Rooms<'a> = BTreeMap<usize, BTreeMap<usize, Vec<&'a Arrow>>>;

/// One line for each import to remove or to reverse, until the modules of each folder are free of cycles.
fn judge(sources: &Sources) -> Vec<String> {
    let mut folders: BTreeMap<usize, Rooms<'_>> = BTreeMap::new();
    for arrow in &sources.arrows {
        if let Some((folder, from, to)) = ends(sources, arrow) {
            let rooms = folders.entry(folder).or_default();
            rooms.entry(from).or_default().entry(to).or_default().push(arrow);
        }
    }

    let mut offences = Vec::new();
    for (&folder, rooms) in &mut folders {
        while let Some((from, to)) = one_too_many(folder, rooms) {
            let arrows = rooms.get_mut(&from).and_then(|targets| targets.remove(&to));
            let why = match to == folder {
                true => "which is above it: import it from where it lives".to_owned(),
                false => format!("which depends on `{}`", sources.path(from)),
            };
            for arrow in arrows.unwrap_or_default() {
                let (at, to) = (place(sources, arrow), sources.path(arrow.to));
                offences.push(format!("{at}: names `{}` of `{to}`, {why}", arrow.item));
            }
        }
    }
    offences
}

/// The folder in which the ends of an import are in two different modules, and these modules.
fn ends(sources: &Sources, arrow: &Arrow) -> Option<(usize, usize, usize)> {
    let mut from: Vec<usize> = sources.ancestry(arrow.from).collect();
    let mut to: Vec<usize> = sources.ancestry(arrow.to).collect();
    let mut folder = None;
    while from.last().is_some() && from.last() == to.last() {
        folder = from.pop();
        to.pop();
    }
    let folder = folder?;
    Some((folder, *from.last().unwrap_or(&folder), *to.last().unwrap_or(&folder)))
}

/// Two modules in a cycle whose imports should be removed: imports from the folder's own file first, then the
/// fewest.
fn one_too_many(folder: usize, rooms: &Rooms<'_>) -> Option<(usize, usize)> {
    let mut pairs: Vec<(bool, usize, usize, usize)> = Vec::new();
    for (&from, targets) in rooms {
        for (&to, arrows) in targets {
            if reaches(rooms, to, from) {
                pairs.push((to != folder, arrows.len(), from, to));
            }
        }
    }
    pairs.into_iter().min().map(|(_, _, from, to)| (from, to))
}

fn reaches(rooms: &Rooms<'_>, from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(room) = open.pop() {
        if room == to {
            return true;
        }
        let targets = rooms.get(&room).into_iter().flat_map(BTreeMap::keys);
        open.extend(targets.filter(|&&target| seen.insert(target)));
    }
    false
}

fn place(sources: &Sources, arrow: &Arrow) -> String {
    let file = &sources.modules[arrow.from].file;
    let file =
        std::env::current_dir().ok().and_then(|here| file.strip_prefix(here).ok()).unwrap_or(file);
    format!("{}:{}", file.display(), arrow.line)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The findings for a crate with these files, without the positions.
    fn judged(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let sources = Sources::read(&folder.path().join("lib.rs")).unwrap();
        let short = |line: String| line.split_once(": ").unwrap().1.to_owned();
        judge(&sources).into_iter().map(short).collect()
    }

    #[test]
    fn a_crate_that_can_be_read_from_the_bottom_up_is_in_order() {
        let offences = judged(&[
            ("lib.rs", "mod low; mod high; pub use high::High;"),
            ("low.rs", "mod part; pub(crate) struct Low;"),
            ("low/part.rs", "use super::Low; impl Low {}"),
            ("high.rs", "use crate::low::Low; pub struct High(Low);"),
        ]);
        assert_eq!(offences, Vec::<String>::new());
    }

    #[test]
    fn a_name_taken_from_a_file_that_only_shows_it_is_an_arrow_up() {
        let offences = judged(&[
            ("lib.rs", "mod low; mod high; pub use low::Low;"),
            ("low.rs", "pub struct Low;"),
            ("high.rs", "use crate::Low;"),
        ]);
        assert_eq!(offences, Vec::<String>::new(), "no module depends on `high`");

        let offences = judged(&[
            ("lib.rs", "mod low; mod high; pub use {low::Low, high::High};"),
            ("low.rs", "pub struct Low;"),
            ("high.rs", "use crate::Low; pub struct High;"),
        ]);
        assert_eq!(
            offences,
            ["names `Low` of `crate`, which is above it: import it from where it lives"]
        );
    }

    #[test]
    fn a_circle_is_opened_where_the_fewest_names_are() {
        let offences = judged(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{B, D};"),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "fn f() { crate::c::go(); crate::c::stop() }"),
            ("c.rs", "use crate::a::A;"),
        ]);
        assert_eq!(offences, ["names `A` of `a`, which depends on `c`"]);
    }
}
