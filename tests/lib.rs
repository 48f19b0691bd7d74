//! Suites that span crates. Each folder beside this file is one suite; see `CONTRIBUTING.md`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

/// Whether to run the one test of a suite without libtest, by what `cargo test` asks of it. Prints
/// the name where only that is wanted.
pub fn is_wanted(name: &str, arguments: &[String]) -> bool {
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return false;
    }
    let mut filters = arguments.iter().filter(|word| !word.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(filter.as_str()))
}

/// How a suite without libtest ends.
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads options of such a suite, each of which has a value.
///
/// # Errors
///
/// A value is missing, or `read` refuses an option or its value.
pub fn read_options(
    arguments: &[String],
    mut read: impl FnMut(&str, &str) -> Result<()>,
) -> Result<()> {
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { bail!("{} needs a value", pair[0]) };
        read(option, value).with_context(|| option.clone())?;
    }
    Ok(())
}

/// Some of `all`, by their names with commas between them.
///
/// # Errors
///
/// There is no such name.
pub fn choose<T: Copy>(
    value: &str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
) -> Result<Vec<T>> {
    let find = |wanted: &str| {
        let known: Vec<_> = all.iter().map(&name).collect();
        let found = all.iter().find(|one| name(one) == wanted).copied();
        found.with_context(|| format!("{wanted} is none of {}", known.join(", ")))
    };
    value.split(',').map(find).collect()
}
