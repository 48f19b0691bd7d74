//! The page, the alerts and the dashboard name only existing metrics, and the page names all of them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lockkeeper::ConnectString;
use lockkeeper::metrics::{FIGURES, FigureKind};
use lockkeeper_engine::Engine;

fn read(file: &str) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// The words of a text that could be names of figures.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("lockkeeper_") || word.starts_with("zk_"))
}

/// What the engine tells as `mntr`.
async fn of_the_engine() -> Result<BTreeSet<String>> {
    let engine = Engine::builder().four_letter_word("mntr").start().await?;
    let client = lockkeeper::Client::builder();
    let servers: ConnectString = engine.connect_string().parse()?;
    let answer = client.ask_word(&servers.hosts[0], "mntr").await?;
    Ok(answer.lines().filter_map(|line| Some(line.split_once('\t')?.0.to_owned())).collect())
}

/// The names in the queries of a file, without keywords and without the contents of braces and brackets.
fn names_in(queries: &[String]) -> BTreeSet<String> {
    const WORDS: [&str; 13] = [
        "sum",
        "max",
        "min",
        "by",
        "rate",
        "increase",
        "histogram_quantile",
        "and",
        "or",
        "instance",
        "job",
        "le",
        "kind",
    ];
    const LABELS: [&str; 3] = ["reason", "state", "queue"];
    let mut names = BTreeSet::new();
    for query in queries {
        let mut text = String::new();
        let mut depth = 0;
        for c in query.chars() {
            depth += i32::from(matches!(c, '{' | '['));
            text.push(if depth > 0 { ' ' } else { c });
            depth -= i32::from(matches!(c, '}' | ']'));
        }
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words = words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
        let is_name = |word: &&str| !WORDS.contains(word) && !LABELS.contains(word);
        names.extend(words.filter(is_name).map(str::to_owned));
    }
    names
}

fn queries_of_alerts() -> Result<Vec<String>> {
    let mut queries = Vec::new();
    let mut is_query = false;
    for line in read("monitoring/alerts.yml")?.lines().map(str::trim) {
        if let Some(query) = line.strip_prefix("expr: ") {
            (is_query, _) = (true, queries.push(query.replace(">-", "")));
        } else if line.starts_with("labels:") || line.starts_with("for:") {
            is_query = false;
        } else if let Some(query) = queries.last_mut().filter(|_| is_query) {
            query.push_str(line);
        }
    }
    Ok(queries)
}

fn dashboard() -> Result<Vec<serde_json::Value>> {
    let dashboard: serde_json::Value = serde_json::from_str(&read("monitoring/dashboard.json")?)?;
    Ok(dashboard["panels"].as_array().context("no panels")?.clone())
}

fn queries_of_the_dashboard() -> Result<Vec<String>> {
    let mut queries = Vec::new();
    for panel in dashboard()? {
        let targets = panel["targets"].as_array().context("no targets")?;
        ensure!(!targets.is_empty() && panel["title"].is_string(), "{panel}");
        for target in targets {
            queries.push(target["expr"].as_str().context("no query")?.to_owned());
        }
    }
    Ok(queries)
}

#[tokio::test]
async fn every_name_in_the_documents_is_one_that_is_reported() -> Result<()> {
    let of_the_engine = of_the_engine().await?;
    ensure!(of_the_engine.len() > 20, "{of_the_engine:?}");
    // Prometheus gets them without what `mntr` puts before them.
    let bare = of_the_engine.iter().filter_map(|name| name.strip_prefix("zk_"));
    let mut known: BTreeSet<String> = bare.map(str::to_owned).collect();
    known.extend(of_the_engine.iter().cloned());
    for figure in FIGURES {
        known.insert(figure.name.to_owned());
        if figure.kind == FigureKind::Histogram {
            // What Prometheus makes of a histogram.
            known.extend(["bucket", "sum", "count"].map(|it| format!("{}_{it}", figure.name)));
        }
    }

    let page = read("monitoring.md")?;
    let of_the_page = words(&page).map(str::to_owned).collect();
    let files = [
        ("the page", of_the_page),
        ("the alerts", names_in(&queries_of_alerts()?)),
        ("the dashboard", names_in(&queries_of_the_dashboard()?)),
    ];
    for (file, names) in files {
        ensure!(names.len() > 8, "{file}: {names:?}");
        let unknown: Vec<_> = names.difference(&known).collect();
        ensure!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    Ok(())
}

#[test]
fn the_page_has_every_figure_with_its_labels_and_every_alert() -> Result<()> {
    let page = read("monitoring.md")?;
    for figure in FIGURES {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}`", figure.name)));
        let row = row.with_context(|| format!("{} has no row", figure.name))?;
        for (label, _) in figure.labels {
            ensure!(row.contains(&format!("`{label}`")), "{}: {label}", figure.name);
        }
    }
    let alerts = read("monitoring/alerts.yml")?;
    let alerts: Vec<_> =
        alerts.lines().filter_map(|it| it.trim().strip_prefix("- alert: ")).collect();
    ensure!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        ensure!(page.contains(&format!("| `{alert}`")), "{alert} has no row");
    }
    Ok(())
}
