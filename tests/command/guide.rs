//! What a page of the docs tells to type does what the page says.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::serve::in_memory;
use crate::support::{Ended, Home};

/// The blocks of a page that are for a shell, as one script.
fn script(page: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above")?;
    let text = std::fs::read_to_string(root.join("docs").join(page))?;
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").map(|(block, _)| block));
    blocks.collect::<Option<String>>().context("a block without an end")
}

/// A path on which `lockkeeper` is the one that the tests built.
fn path_with(program: PathBuf) -> Result<OsString> {
    let folder = program.parent().context("a program in no folder")?.to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(std::iter::once(folder).chain(env::split_paths(&others)))?)
}

/// Runs what a page tells to type, with this server in place of the page's.
fn follow(home: &Home, page: &str, address: &str) -> Result<Ended> {
    let script = script(page)?.replace("zk1:2181,zk2:2181,zk3:2181", address);
    let program = home.command("").get_program().into();
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &script]).current_dir(home.folder());
    Ended::of(shell.env("PATH", path_with(program)?).env("LOCKKEEPER_HOME", home.engine()))
}

#[tokio::test]
async fn the_page_on_access_is_true() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let ended = follow(&home, "access.md", &address)?;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let said: Vec<_> = ended.stdout.lines().collect();
    let expected = [
        "ann holds deploy",
        "refused with 77",
        "ann holds team/deploy",
        "bob holds team/deploy",
        "refused with 77",
        "ann holds old/deploy",
    ];
    assert_eq!(said, expected, "{ended:?}");
    let warnings = ended.stderr.matches("does not protect it").count();
    assert_eq!(warnings, 2, "for /old/deploy and for /old: {ended:?}");
    Ok(())
}

/// Builds the program in the README, which newcomers copy.
#[test]
fn the_readme_shows_a_program_that_runs() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| std::fs::read_to_string(root.join(name));
    let readmes = [read("README.md")?, read("README.zh-CN.md")?];
    let example = read("examples/getting_started.rs")?;
    let program = example.split_once("\n\n").context("no introduction")?.1;
    assert!(readmes[0].contains(&format!("```rust\n{program}```")), "another program");

    let workspace = read("Cargo.toml")?;
    let (_, rest) = workspace.split_once("rust-version = \"").context("no rust-version")?;
    let version = rest.split('"').next().context("no rust-version")?;
    let library = read("crates/lockkeeper/Cargo.toml")?;
    let features = library.split_once("[features]\n").context("no features")?.1;
    let features = features.split("\n[").next().unwrap_or_default();

    for (readme, needs) in readmes.iter().zip(["needs", "需要"]) {
        let needed = format!("{needs} Rust {version}");
        assert!(readme.contains(&needed), "another version than {version}");
        for line in features.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, _)) = line.split_once(" = ") else { continue };
            let row = format!("| `{name}` |");
            assert!(readme.contains(&row), "nothing about the feature {name}");
        }
    }
    Ok(())
}
