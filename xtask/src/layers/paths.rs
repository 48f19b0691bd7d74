//! The modules of a crate, and the paths with which they refer to each other, read from the sources.
//!
//! Works on tokens instead of syntax trees, so that paths within macros count too. Code that is compiled only
//! for tests is left out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module of a crate, numbered; the crate root is number 0.
pub(crate) struct Module {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    pub(crate) file: PathBuf,
}

/// A path from one module to another, as written in the first one.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The name behind the module; empty for the module itself.
    pub(super) item: String,
    pub(super) line: usize,
}

/// A crate, as read from its sources.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) modules: Vec<Module>,
    pub(super) arrows: Vec<Arrow>,
}

/// A path in a module before its target is known.
struct Mention {
    from: usize,
    segments: Vec<String>,
    line: usize,
}

impl Sources {
    /// Reads the crate with this root file.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let folder = root.parent().unwrap_or(Path::new("."));
        let mut sources = Self::default();
        let mut mentions = Vec::new();

        let crate_root = sources.add("crate", None, root.to_owned());
        sources.read_file(crate_root, folder, &mut mentions)?;
        // The targets of paths can only be resolved when all modules are known.
        sources.arrows = mentions.iter().filter_map(|mention| sources.resolve(mention)).collect();

        Ok(sources)
    }

    /// The module's path from the crate root, such as `guard::state`.
    pub(super) fn path(&self, module: usize) -> String {
        let mut names: Vec<&str> =
            self.ancestry(module).map(|module| self.modules[module].name.as_str()).collect();
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        names.join("::")
    }

    /// The module, its parent, and so on up to the root.
    pub(super) fn ancestry(&self, module: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(module), |&module| self.modules[module].parent)
    }

    fn add(&mut self, name: &str, parent: Option<usize>, file: PathBuf) -> usize {
        self.modules.push(Module { name: name.to_owned(), parent, file });
        self.modules.len() - 1
    }

    fn child(&self, parent: usize, name: &str) -> Option<usize> {
        (0..self.modules.len()).find(|&module| {
            self.modules[module].parent == Some(parent) && self.modules[module].name == name
        })
    }

    /// Reads a module's file. The files of its children are below `folder`.
    fn read_file(
        &mut self,
        module: usize,
        folder: &Path,
        mentions: &mut Vec<Mention>,
    ) -> Result<()> {
        let file = self.modules[module].file.clone();
        self.read_tokens(module, folder, tokens_of(&file)?, mentions)
    }

    fn read_tokens(
        &mut self,
        module: usize,
        folder: &Path,
        tokens: TokenStream,
        mentions: &mut Vec<Mention>,
    ) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let line = token.span().start().line;
            let mut mention = |segments| mentions.push(Mention { from: module, segments, line });

            // Each arm returns the position after the tokens that it has read.
            at = match (token, tokens.get(at + 1)) {
                (sign, _) if is_sign(sign, '#') && is_test_only(&tokens[at..]) => {
                    after_item(&tokens, at + 2)
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if *word == "mod" => {
                    let body = tokens.get(at + 2);
                    self.read_module(module, folder, &name.to_string(), body, mentions)?;
                    at + 3
                }
                (TokenTree::Ident(word), _) if *word == "use" => {
                    let end = end_of_statement(&tokens, at);
                    use_tree(&tokens[at + 1..end]).into_iter().for_each(mention);
                    end
                }
                (TokenTree::Ident(word), _) if *word != "mod" && !is_path_tail(&tokens, at) => {
                    let segments = path_at(&tokens, at);
                    let after = at + 1 + 3 * segments.len().saturating_sub(1);
                    if segments.len() > 1 {
                        mention(segments);
                    }
                    after
                }
                (TokenTree::Group(group), _) => {
                    self.read_tokens(module, folder, group.stream(), mentions)?;
                    at + 1
                }
                _ => at + 1,
            };
        }
        Ok(())
    }

    /// A `mod` item, with its body in a group or a file.
    fn read_module(
        &mut self,
        parent: usize,
        folder: &Path,
        name: &str,
        body: Option<&TokenTree>,
        mentions: &mut Vec<Mention>,
    ) -> Result<()> {
        let inside = folder.join(name);
        if let Some(TokenTree::Group(body)) = body {
            let file = self.modules[parent].file.clone();
            let module = self.add(name, Some(parent), file);
            return self.read_tokens(module, &inside, body.stream(), mentions);
        }
        let file = [folder.join(format!("{name}.rs")), inside.join("mod.rs")]
            .into_iter()
            .find(|file| file.exists())
            .with_context(|| format!("no file for module {name} in {}", folder.display()))?;
        let module = self.add(name, Some(parent), file);
        self.read_file(module, &inside, mentions)
    }

    /// The target of a path, if it is another module of this crate.
    fn resolve(&self, mention: &Mention) -> Option<Arrow> {
        let mut segments = mention.segments.iter().map(String::as_str).peekable();
        let first = segments.next()?;
        let mut to = match first {
            "crate" => 0,
            "self" => mention.from,
            "super" => self.modules[mention.from].parent?,
            child => self.child(mention.from, child)?,
        };

        while segments.next_if_eq(&"super").is_some() {
            to = self.modules[to].parent?;
        }
        while let Some(child) = segments.peek().and_then(|name| self.child(to, name)) {
            to = child;
            segments.next();
        }

        let item = segments.next().unwrap_or_default().to_owned();
        let Mention { from, line, .. } = *mention;
        (to != from).then_some(Arrow { from, to, item, line })
    }
}

/// The tokens of a source file.
pub(crate) fn tokens_of(file: &Path) -> Result<TokenStream> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.parse().map_err(|e| anyhow!("cannot parse {}: {e}", file.display()))
}

/// Whether an attribute at this position is `#[cfg(test)]`, or a combination that requires tests.
pub(crate) fn is_test_only(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(1) else { return false };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The position after the item at `from`: after its body or its semicolon.
pub(crate) fn after_item(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        _ => false,
    };
    tokens[from..].iter().position(ends).map_or(tokens.len(), |length| from + length + 1)
}

fn end_of_statement(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |token: &TokenTree| is_sign(token, ';');
    tokens[from..].iter().position(ends).map_or(tokens.len(), |length| from + length)
}

pub(crate) fn is_sign(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(sign) if sign.as_char() == wanted)
}

fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| tokens.get(at).is_some_and(|token| is_sign(token, ':'));
    is_colon(at) && is_colon(at + 1)
}

/// Whether the token at this position continues a path, or is `$crate`, which another crate may expand.
fn is_path_tail(tokens: &[TokenTree], at: usize) -> bool {
    (at >= 2 && is_double_colon(tokens, at - 2)) || (at >= 1 && is_sign(&tokens[at - 1], '$'))
}

/// The names of the path at this position.
fn path_at(tokens: &[TokenTree], at: usize) -> Vec<String> {
    let mut segments = Vec::new();
    let mut next = at;
    while let Some(TokenTree::Ident(name)) = tokens.get(next) {
        segments.push(name.to_string());
        if !is_double_colon(tokens, next + 1) {
            break;
        }
        next += 3;
    }
    segments
}

/// The paths of a `use` item, without the keyword and the semicolon.
fn use_tree(tokens: &[TokenTree]) -> Vec<Vec<String>> {
    let prefix = path_at(tokens, 0);
    let after = if prefix.is_empty() { 0 } else { 3 * prefix.len() - 1 };
    let group = [after, after + 1].into_iter().find_map(|at| match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group.stream()),
        _ => None,
    });
    let Some(group) = group else { return vec![prefix] };

    let branches: Vec<TokenTree> = group.into_iter().collect();
    branches
        .split(|token| is_sign(token, ','))
        .filter(|branch| !branch.is_empty())
        .flat_map(use_tree)
        .map(|branch| prefix.iter().cloned().chain(branch).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_of_use(text: &str) -> Vec<String> {
        let tokens: Vec<TokenTree> = text.parse::<TokenStream>().unwrap().into_iter().collect();
        use_tree(&tokens).iter().map(|segments| segments.join("::")).collect()
    }

    #[test]
    fn a_use_item_is_taken_apart() {
        let paths = paths_of_use("crate::a::{self, b::{C, d as e}, F}");
        assert_eq!(paths, ["crate::a::self", "crate::a::b::C", "crate::a::b::d", "crate::a::F"]);
        assert_eq!(paths_of_use("super::G"), ["super::G"]);
        assert_eq!(paths_of_use("super::*"), ["super"]);
    }

    #[test]
    fn paths_are_found_in_code_and_macros_and_not_in_tests() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("lib.rs", "mod low; mod high; #[cfg(test)] mod tests; pub use high::High;");
        write("low.rs", "pub(crate) struct Low; #[cfg(test)] mod tests { use crate::high::High; }");
        write(
            "high.rs",
            "fn f() { println!(\"{}\", crate::low::f(1)) } struct High(super::low::Low);",
        );

        let sources = Sources::read(&folder.path().join("lib.rs")).unwrap();

        let arrows: Vec<String> = sources
            .arrows
            .iter()
            .map(|arrow| {
                format!("{} {} {}", sources.path(arrow.from), sources.path(arrow.to), arrow.item)
            })
            .collect();
        assert_eq!(arrows, ["high low f", "high low Low", "crate high High"]);
    }
}
