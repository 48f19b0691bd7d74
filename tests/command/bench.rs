//! `bench`: its rows, and that every figure in them is right.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::serve::{served, talk};
use crate::slow::Slow;
use crate::support::Home;

const ROWS: [(&str, u32); 6] = [
    ("round-trip", 1),
    ("cycle", 1),
    ("cycle", 16),
    ("cycle", 64),
    ("hand-over", 2),
    ("hand-over", 8),
];

/// One row of the table.
struct Row {
    name: String,
    parallel: u32,
    count: u64,
    per_second: f64,
    /// P50, P99, P99.9 and the maximum, in microseconds.
    us: [f64; 4],
}

impl Row {
    fn read(row: &Value) -> Result<Self> {
        let number = |name: &str| row[name].as_f64().with_context(|| format!("{name}: {row}"));
        Ok(Self {
            name: row["row"].as_str().context("a name")?.to_owned(),
            parallel: number("parallel")? as u32,
            count: row["count"].as_u64().context("a count")?,
            per_second: number("per_second")?,
            us: [number("p50_us")?, number("p99_us")?, number("p999_us")?, number("max_us")?],
        })
    }

    /// How long it was measured, as follows from the rate.
    fn seconds(&self) -> f64 {
        self.count as f64 / self.per_second
    }

    /// How many are measured at the same time: a lock is handed over by one at a time.
    fn at_once(&self) -> f64 {
        if self.name == "hand-over" { 1.0 } else { f64::from(self.parallel) }
    }
}

/// Runs it; gives its rows and how long it took.
fn rows(home: &Home, arguments: &str) -> Result<(Vec<Row>, Duration)> {
    let start = Instant::now();
    let shown = home.json(arguments)?;
    let took = start.elapsed();
    let rows = shown["rows"].as_array().with_context(|| format!("no rows: {shown}"))?;
    let rows: Vec<_> = rows.iter().map(Row::read).collect::<Result<_>>()?;
    let names: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.parallel)).collect();
    assert_eq!(names, ROWS);
    Ok((rows, took))
}

#[test]
fn the_table_fits_into_80_columns_and_leaves_nothing() -> Result<()> {
    let home = Home::new()?;
    let table = home.ends("bench --time 50ms")?;
    table.is_fine();
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 80), "{}", table.stdout);
    assert!(table.stdout.contains(", 50ms for each row\n"), "{}", table.stdout);
    assert_eq!(home.json("ls")?["locks"], json!([]));
    Ok(())
}

/// What the server has counted by itself is what the rows say.
#[tokio::test]
async fn the_server_has_counted_the_same() -> Result<()> {
    let home = Home::new()?;
    let options =
        "--listen 127.0.0.1:0 --durability memory --four-letter-words mntr --metrics 127.0.0.1:0";
    let (server, address) = served(&home, "server", options).await?;
    let metrics = crate::serve::metrics_address(&server)?;
    let (rows, _) = rows(&home, &format!("--connect {address} bench --time 150ms"))?;
    let page = talk(&metrics, "GET /metrics HTTP/1.0\r\n\r\n")?;
    let requests = |op: &str| -> Result<u64> {
        let name = format!("lockkeeper_request_seconds_count{{op=\"{op}\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&name));
        Ok(count.with_context(|| format!("no {name}: {page}"))?.parse()?)
    };
    let counted = |name: &str| -> u64 {
        rows.iter().filter(|row| row.name == name).map(|row| row.count).sum()
    };

    // One acquire of each lock comes before its row; who has it first was handed it by nobody.
    let cycles = counted("cycle") + 1 + 16 + 64;
    let hand_overs = counted("hand-over") + 2;
    // The locks' nodes, and the one above them.
    let cleared = 64 + 1;
    assert_eq!(requests("delete")?, cycles + hand_overs + cleared);
    assert_eq!(requests("exists")?, counted("round-trip"));
    Ok(())
}

/// The times and the rates are those of a network that the test knows, and fit the counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_figures_fit_the_network_and_each_other() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(10);
    const TIME: f64 = 0.4;

    let home = Home::new()?;
    let (_server, address) =
        served(&home, "server", "--listen 127.0.0.1:0 --durability memory").await?;
    let slow = Slow::start(&address, DELAY).await?;
    let connect = slow.connect_string();
    let (rows, took) = rows(&home, &format!("--connect {connect} bench --time 400ms"))?;
    let mut sum = 0.0;
    for row in &rows {
        // There and back for a read, twice for a lock; a release there and its event back.
        let trips = if row.name == "cycle" { 4.0 } else { 2.0 };
        let least = trips * DELAY.as_secs_f64();
        let what = format!("{} ({}): {:?}", row.name, row.parallel, row.us);
        assert!(row.us[0] >= least * 1e6 && row.us.is_sorted(), "{what}");
        assert!(row.count > 0 && row.per_second <= row.at_once() / least, "{what}");

        // Half of them took the median or longer, and all of them fit into the time.
        let seconds = row.seconds();
        assert!(row.us[0] * row.count as f64 / 2e6 <= seconds * row.at_once(), "{what}");
        assert!(seconds >= TIME && row.us[3] <= seconds * 1e6, "{what}: {seconds} s");
        sum += seconds;
    }
    assert!(sum < took.as_secs_f64(), "{sum} s of {took:?}");
    Ok(())
}
