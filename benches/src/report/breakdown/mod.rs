//! Where the time goes: what bounds the figures, from numbers of the same run.

mod memory;
mod one_task;
mod waiters;

use super::page::{Page, short};
use crate::book::Book;
use crate::targets::{
    BARE, BARE_NOT_AWAITED, CURATOR, ON_ZOOKEEPER, ON_ZOOKEEPER_NOT_AWAITED as NOT_AWAITED,
    SECOND_LOOK, SECOND_LOOK_NOT_AWAITED,
};

const ENGINE: &str = "lockkeeper";

pub(super) fn write(page: &mut Page, book: &Book) {
    page.line("## Where the time goes\n");
    one_task::write(page, book);
    processors(page, book);
    zookeeper(page, book);
    memory::write(page, book);
    waiters::write(page, book);
}

/// What a cycle takes of the processors where many tasks share a connection.
fn processors(page: &mut Page, book: &Book) {
    const TASKS: usize = 256;
    // A lock of ZooKeeper's kind is created, listed and deleted; Redis's is set and deleted.
    let systems = [
        (ENGINE, "engine, memory", 3.0),
        (ENGINE, "engine, os", 3.0),
        (ENGINE, "engine, sync", 3.0),
        ("redis", "no persistence", 2.0),
        ("redis", "appendfsync everysec", 2.0),
        ("redis", "appendfsync always", 2.0),
    ];
    let line = |(system, config, requests): (&str, &str, f64)| {
        let number = |metric| book.median("cycles", (system, config), TASKS, metric);
        let cycles = number("cycles_per_s")?;
        Some(vec![
            system.to_owned(),
            config.to_owned(),
            short(cycles),
            short(requests),
            short(cycles * requests),
            short(number("harness_cpu_us")?),
            short(number("other_cpu_us")?),
        ])
    };
    let rows: Vec<Vec<String>> = systems.into_iter().filter_map(line).collect();
    if rows.is_empty() {
        return;
    }
    page.line(
        "At 256 tasks nobody waits for the network or, with group commit, for long for the disk: the \
         processors are the bound. A lock in the order of arrival takes three requests (create, \
         list, delete), one in Redis two (set, delete), so at the same cost of a request it makes \
         two thirds of the cycles: the requests a second are the fairer comparison of the programs, \
         the cycles that of the locks. The listing cannot be left out: the answer to a create names the \
         new node and not who else is in line. That nobody came since the client's own last node \
         could be told from the number alone, but only while the parent is the same one, and no \
         answer says that; unless that node goes in the same transaction, as where nobody waits for \
         the release (`docs/decisions/0012`).\n",
    );
    let head = [
        "system",
        "configuration",
        "cycles/s",
        "requests of a cycle",
        "requests/s",
        "client, us of processor time a cycle",
        "all else",
    ];
    page.table(&head, &rows);
    page.line(
        "The client is one thread of the harness: a million divided by its time is the most cycles \
         that it can make. \u{201c}All else\u{201d} is the server, and what the kernel does for both.\n",
    );
}

/// What bare requests in place of a lock make of the same ZooKeeper server.
fn zookeeper(page: &mut Page, book: &Book) {
    let released = [
        ("", [BARE, SECOND_LOOK, ON_ZOOKEEPER]),
        (", not awaited", [BARE_NOT_AWAITED, SECOND_LOOK_NOT_AWAITED, NOT_AWAITED]),
    ];
    let targets = [
        ("P5, cycle p50, us", "cycles", 1, "cycle_p50_us"),
        ("P6, cycles/s", "cycles", 64, "cycles_per_s"),
        ("P7, hand-offs/s, 8 clients", "hand-offs", 8, "hand_offs_per_s"),
        ("P7, hand-offs/s, 64 clients", "hand-offs", 64, "hand_offs_per_s"),
    ];
    let mut rows = Vec::new();
    for (what, row, tasks, metric) in targets {
        for (how, systems) in released {
            let median = |who| book.median(row, who, tasks, metric);
            let Some(curator) = median(CURATOR) else { continue };
            let medians = systems.map(median);
            if medians.iter().all(Option::is_none) {
                continue;
            }
            // Where nobody waits, there is no second look.
            let number = |value: Option<f64>| value.map(short).unwrap_or_default();
            let mut line = vec![format!("{what}{how}")];
            line.extend(medians.map(number));
            line.push(short(curator));
            line.extend(medians.map(|median| number(median.map(|median| median / curator))));
            rows.push(line);
        }
    }
    if rows.is_empty() {
        return;
    }
    page.line(
        "On Apache ZooKeeper the server is the bound. In place of a lock, the same client sends it the \
         bare requests that no lock in the order of arrival can do without if each that waits has a \
         node: a create with a listing behind it, a watch on the node ahead if there is one, its \
         event, a delete. If nobody waits for the release, the delete and the next create are one \
         transaction, for which the server syncs once (`docs/decisions/0010`), and if the line was \
         known at the own turn, there is no listing where the number of the new node tells that \
         nobody has come since (`docs/decisions/0012`). It does not watch its own node, and knows no \
         lost connections.\n",
    );
    page.line(
        "That takes the end of the node ahead for its own turn. A lock cannot: whoever was ahead may \
         have left the middle of the line, with others before it. So it lists once more, and this \
         second look is a whole round trip between one holder and the next: the columns \u{201c}second \
         look\u{201d}. It is the bound for a lock in the order of arrival of which each release \
         wakes one waiter, by one event.\n",
    );
    let head = [
        "",
        "bare requests",
        "second look",
        "ours",
        "Curator",
        "bare/Curator",
        "second look/Curator",
        "ours/Curator",
    ];
    page.table(&head, &rows);
}
