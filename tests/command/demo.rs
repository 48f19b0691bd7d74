//! `demo`, completions and the manual.

use anyhow::Result;

use crate::support::Home;

#[test]
fn the_herd_is_counted() -> Result<()> {
    let home = Home::new()?;
    let shown = home.json("demo --waiters 12")?;
    assert_eq!(shown["naive"]["notifications"], 12);
    assert_eq!(shown["fair"]["notifications"], 1);
    Ok(())
}

#[test]
fn the_story_fits_into_80_columns_and_into_a_file() -> Result<()> {
    let home = Home::new()?;
    let ended = home.ends("demo --waiters 3")?;
    ended.is_fine();
    for part in ["locked", "taken: waits", "releases", "notified: NodeDeleted", "naive", "fair"] {
        assert!(ended.stdout.contains(part), "{}", ended.stdout);
    }
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}'), "no colours outside of a terminal");
    Ok(())
}

#[test]
fn the_demo_leaves_nothing_on_a_server() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start")?.is_fine();
    let ended = home.ends(&format!("--connect {} demo --waiters 3", home.connect_string()))?;
    ended.is_fine();
    assert_eq!(home.json("ls")?["locks"], serde_json::json!([]));
    Ok(())
}

#[test]
fn shells_and_readers_are_served() -> Result<()> {
    let home = Home::new()?;
    for shell in ["bash", "zsh", "fish"] {
        let script = home.ends(&format!("completions {shell}"))?;
        script.is_fine();
        assert!(script.stdout.contains("lockkeeper"), "{shell}");
    }
    for page in ["man", "man run"] {
        let page = home.ends(page)?;
        page.is_fine();
        assert!(page.stdout.contains(".TH lockkeeper"), "{}", page.stdout);
    }
    assert!(home.ends("run --help")?.stdout.contains("79"), "exit codes are in the help");
    Ok(())
}
