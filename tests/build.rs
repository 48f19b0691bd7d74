//! Finds the tests of the suite `contract`: in each file, the functions that take a server, or those who use it, and
//! nothing else.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a test can be a function of.
const CASTS: [&str; 6] = ["Backend", "Participant", "Client", "Pair", "Observed", "Clients"];

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=contract");
    let found = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for entry in fs::read_dir("contract")? {
        let file = entry?.path();
        let tests = tests_of(&fs::read_to_string(&file)?).join(", ");
        let name = file.file_name().map(Path::new).expect("a file has a name");
        let suite = name.with_extension("");
        let text = format!("crate::servers! {{ {:?}: {tests} }}", suite.display().to_string());
        fs::write(found.join(name), text)?;
    }
    Ok(())
}

/// Each as the macro takes it: its name, and the function.
fn tests_of(text: &str) -> Vec<String> {
    let functions = text.split("\nasync fn ").skip(1);
    let tests = functions.filter_map(|function| {
        let (name, rest) = function.split_once('(')?;
        let (parameters, _) = rest.split_once(") -> Result<()> {")?;
        let (_, kind) = parameters.trim().trim_end_matches(',').split_once(": ")?;
        let is_test = CASTS.contains(&kind) && !name.contains('<');
        is_test.then(|| format!("{name} = super::{name}"))
    });
    tests.collect()
}
