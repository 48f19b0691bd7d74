//! Checks that public async functions of the libraries document their cost, errors, session loss and cancel
//! safety.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::cargo::workspace;
use crate::layers::paths::{Sources, after_item, is_sign, is_test_only, tokens_of};

const PACKAGES: [&str; 4] =
    ["lockkeeper-client", "lockkeeper-locks", "lockkeeper-recipes", "lockkeeper"];

/// Any of these phrases states a cost.
const COST: [&str; 4] = ["round trip", "Costs ", "no request", "No I/O"];

/// Checks the libraries of this workspace.
///
/// # Errors
///
/// One line for each function with a missing section.
pub(crate) fn run() -> Result<()> {
    let (metadata, mut lacks) = (workspace()?, Vec::new());
    for package in metadata.packages.iter().filter(|p| PACKAGES.contains(&p.name.as_str())) {
        let library = package.targets.iter().find(|target| target.is_lib());
        let library = library.with_context(|| format!("{} lacks a library", package.name))?;
        let sources = Sources::read(library.src_path.as_std_path())?;

        // A module within a file has the same file.
        for file in sources.modules.iter().map(|m| &m.file).collect::<BTreeSet<_>>() {
            let name = file.strip_prefix(&metadata.workspace_root).unwrap_or(file).display();
            let found = lacking(tokens_of(file)?).into_iter();
            lacks.extend(found.map(|(line, lack)| format!("{name}:{line} {lack}")));
        }
    }

    if !lacks.is_empty() {
        bail!("public async functions with incomplete documentation:\n  {}", lacks.join("\n  "));
    }
    println!("the documentation of all public async functions is complete");
    Ok(())
}

/// The lines and names of the functions with incomplete documentation, and what is missing.
fn lacking(tokens: TokenStream) -> Vec<(usize, String)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut found, mut docs, mut at) = (Vec::new(), String::new(), 0);
    while let Some(token) = tokens.get(at) {
        match (token, tokens.get(at + 1)) {
            (sign, Some(TokenTree::Group(attribute))) if is_sign(sign, '#') => {
                let text = attribute.stream().to_string().replace(' ', "");
                match text == "doc(hidden)" || is_test_only(&tokens[at..]) {
                    true => (docs, at) = (String::new(), after_item(&tokens, at + 2)),
                    false => (docs, at) = (docs + &doc_line(attribute), at + 2),
                }
                continue;
            }
            (TokenTree::Group(group), _) => found.extend(lacking(group.stream())),
            _ => {}
        }

        let missing = async_function(&tokens[at..]).and_then(|head| missing(&docs, head));
        found.extend(missing.map(|lack| (token.span().start().line, lack)));
        docs.clear();
        at += 1;
    }
    found
}

/// The text of a line of documentation with a space after it; empty for other attributes.
fn doc_line(attribute: &Group) -> String {
    match &attribute.stream().into_iter().collect::<Vec<_>>()[..] {
        [TokenTree::Ident(doc), _, TokenTree::Literal(text)] if doc == "doc" => {
            text.to_string().trim_matches(['"', ' ']).to_owned() + " "
        }
        _ => String::new(),
    }
}

/// The tokens of the public async function at this position, from its name to its body or `where` clause.
fn async_function(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    let begins = tokens.iter().zip(["pub", "async", "fn"]).all(|(token, word)| is(token, word));
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is(token, "where"),
    };
    let end = tokens.iter().position(ends)?;
    tokens.get(3..end).filter(|_| begins)
}

/// The name of a function, and the missing parts of its documentation; `None` if it is complete.
fn missing(docs: &str, head: &[TokenTree]) -> Option<String> {
    let mut wanted = vec!["# Session loss", "# Cancel safety"];
    wanted.extend(head.iter().any(|token| is(token, "Result")).then_some("# Errors"));
    let mut missing: Vec<_> = wanted.into_iter().filter(|part| !docs.contains(part)).collect();
    missing.extend((!COST.iter().any(|words| docs.contains(words))).then_some("its cost"));
    (!missing.is_empty()).then(|| format!("{}: {}", head[0], missing.join(", ")))
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_leaves_out_is_found() {
        let text = "impl Lock {
            /// It is \"good\", for one round
            /// trip.
            ///
            /// # Errors
            /// # Session loss
            /// # Cancel safety
            #[must_use]
            pub async fn good(&self) -> io::Result<()> { Ok(()) }

            /// Costs nothing.
            ///
            /// # Session loss
            /// # Cancel safety
            pub async fn good_too<F>(&self, f: F) where F: Future<Output = Result<(), ()>> {}

            /// One round trip.
            ///
            /// # Session loss
            pub async fn bad(&self, what: T) -> Result<Option<T>, Error> { todo!() }
            pub async fn silent(&self) {}

            #[doc(hidden)]
            pub async fn hidden(&self) {}
            pub(crate) async fn inner(&self) {}
        }
        #[cfg(test)]
        mod tests { pub async fn helper() {} }";
        let found = lacking(text.parse().unwrap());
        let bad = (20, "bad: # Cancel safety, # Errors".to_owned());
        let silent = (21, "silent: # Session loss, # Cancel safety, its cost".to_owned());
        assert_eq!(found, [bad, silent]);
    }
}
