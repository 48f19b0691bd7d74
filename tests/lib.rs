//! Suites that span crates. Each folder beside this file is one suite; see `CONTRIBUTING.md`.

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
