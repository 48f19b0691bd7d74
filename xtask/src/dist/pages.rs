//! The documentation that is handed out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::place::Dist;
use super::tools::{copy, write};

/// Copies the pages for users and administrators, and what they refer to, in the folders of the repository. A link to
/// something else, such as a source, becomes its text.
pub(super) fn documentation(dist: &Dist, folder: &Path) -> Result<()> {
    for page in ["README.md", "README.zh-CN.md"] {
        copy(&dist.sources.join(page), &folder.join(page), 0o644)?;
    }
    for part in ["docs", "examples"] {
        copy_all(&dist.sources.join(part), &folder.join(part))?;
    }
    mend_links(folder)
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false => copy(&entry.path(), &to, 0o644)?,
        }
    }
    Ok(())
}

fn mend_links(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            mend_links(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let leads_somewhere = |target: &str| {
                let file = target.split('#').next().unwrap_or_default();
                target.contains("://") || folder.join(file).exists()
            };
            write(&path, with_links(&page, leads_somewhere))?;
        }
    }
    Ok(())
}

/// The page, with the text of each link that leads nowhere instead of the link.
fn with_links(page: &str, leads_somewhere: impl Fn(&str) -> bool) -> String {
    let mut rest = page;
    let mut mended = String::with_capacity(page.len());
    while let Some((before, after)) = rest.split_once("](") {
        let link = text_of_link(before).zip(after.split_once(')'));
        match link.filter(|(_, (target, _))| !leads_somewhere(target)) {
            Some((text, (_, after))) => {
                mended.push_str(&before[..before.len() - text.len() - 1]);
                mended.push_str(text);
                rest = after;
            }
            None => {
                mended.push_str(before);
                mended.push_str("](");
                rest = after;
            }
        }
    }
    mended + rest
}

/// What stands behind the bracket that is still open at the end.
fn text_of_link(before: &str) -> Option<&str> {
    let mut closed = 0;
    for (at, bracket) in before.rmatch_indices(['[', ']']) {
        match (bracket, closed) {
            ("]", _) => closed += 1,
            (_, 0) => return Some(&before[at + 1..]),
            _ => closed -= 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_becomes_its_text() {
        let page = "[a](x.md), see [`Mutex[T]`](../src/m.rs) and [b\nc](no.md#d); ![p](p.png) [1]";
        let leads_somewhere = |target: &str| matches!(target, "x.md" | "p.png");
        let mended = "[a](x.md), see `Mutex[T]` and b\nc; ![p](p.png) [1]";
        assert_eq!(with_links(page, leads_somewhere), mended);
        assert_eq!(with_links("no link", |_| false), "no link");
    }
}
