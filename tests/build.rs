//! Finds the tests of the suite `contract`: in each file, the functions that take a server, or those who use it, and
//! nothing else; for one lock, or for each kind of them.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a test can be a function of.
const CASTS: [&str; 6] = ["Backend", "Participant", "Client", "Pair", "Observed", "Clients"];

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=contract");
    let found = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for entry in fs::read_dir("contract")? {
        let file = entry?.path();
        let text = fs::read_to_string(&file)?;
        let name = file.file_name().map(Path::new).expect("a file has a name");
        let suite = name.with_extension("");
        let (suite, tests) = (suite.display(), |of| tests_of(&text, of).join(", "));

        let (one, each, in_line) = (tests(""), tests("<L: Exclusive>"), tests("<L: InLine>"));
        let mut made = String::new();
        if !one.is_empty() {
            made += &format!("crate::servers! {{ \"{suite}\": {one} }}\n");
        }
        if !each.is_empty() || !in_line.is_empty() {
            made += &format!(
                "crate::for_each_lock! {{ \"{suite}\": {each}; where there is a line: {in_line} }}\n"
            );
        }
        fs::write(found.join(name), made)?;
    }
    Ok(())
}

/// The names of those that are for these locks.
fn tests_of<'a>(text: &'a str, of: &str) -> Vec<&'a str> {
    let functions = text.split("\nasync fn ").skip(1);
    let tests = functions.filter_map(|function| {
        let (name, rest) = function.split_once('(')?;
        let (parameters, _) = rest.split_once(") -> Result<()> {")?;
        let (_, kind) = parameters.trim().trim_end_matches(',').split_once(": ")?;
        let name = name.strip_suffix(of)?;
        (CASTS.contains(&kind) && !name.contains('<')).then_some(name)
    });
    tests.collect()
}
