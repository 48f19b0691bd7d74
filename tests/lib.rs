//! Suites that span crates. Each folder beside this file is one suite; see `CONTRIBUTING.md`.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

/// Where the pages go that suites write.
pub const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guarantees");

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

/// All values of a choice on a command line.
pub fn all<T: ValueEnum>() -> Vec<T> {
    T::value_variants().to_vec()
}

/// One of them as on the command line.
pub fn name<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The middle one of some values; 0 of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
