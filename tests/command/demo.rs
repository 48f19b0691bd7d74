//! `demo`, `bench`, completions and the manual.

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
fn a_short_measurement_has_all_rows_and_leaves_nothing() -> Result<()> {
    let home = Home::new()?;
    let shown = home.json("bench --time 50ms")?;
    let rows = shown["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = rows.iter().map(|row| (&row["row"], &row["parallel"])).collect();
    let expected = [
        ("round-trip", 1),
        ("cycle", 1),
        ("cycle", 16),
        ("cycle", 64),
        ("hand-over", 2),
        ("hand-over", 8),
    ];
    assert!(names.iter().zip(&expected).all(|(found, e)| found == &(&e.0.into(), &e.1.into())));
    assert_eq!(names.len(), expected.len());
    assert!(rows.iter().all(|row| row["count"].as_u64() > Some(0)), "{shown}");
    assert!(rows.iter().all(|row| row["p50_us"].as_f64() <= row["max_us"].as_f64()), "{shown}");
    let table = home.ends("bench --time 50ms")?;
    table.is_fine();
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 80), "{}", table.stdout);
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
