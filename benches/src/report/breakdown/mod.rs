//! Where the time goes: what bounds the figures, from numbers of the same run.

mod memory;
mod one_task;

use super::page::{Page, short};
use crate::book::Book;
use crate::targets::{CURATOR, ON_ZOOKEEPER, ON_ZOOKEEPER_NOT_AWAITED as NOT_AWAITED};

const ENGINE: &str = "lockkeeper";

/// What a lock asks of a server, by the name of its row.
const BARE: [(&str, &str); 2] = [
    ("a create and a delete", "create_and_delete"),
    ("the same, and a listing behind the create", "create_list_delete"),
];

/// The same if the release is not awaited, and goes into one transaction with the next acquire.
const REPLACE: (&str, &str) = ("a delete and a create in one", "replace");

pub(super) fn write(page: &mut Page, book: &Book) {
    page.line("## Where the time goes\n");
    one_task::write(page, book);
    processors(page, book);
    zookeeper(page, book);
    memory::write(page, book);
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
         answer says that.\n",
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

/// What a client that costs nothing could make of the same ZooKeeper server.
fn zookeeper(page: &mut Page, book: &Book) {
    let raw = |tasks, metric: &str| book.median("raw", ON_ZOOKEEPER, tasks, metric);
    let cycles = |who, tasks, metric| book.median("cycles", who, tasks, metric);
    let hand_offs = |who, clients| book.median("hand-offs", who, clients, "hand_offs_per_s");
    let mut rows = Vec::new();
    let mut add = |id: &str, floor: &str, bound: Option<f64>, ours: Option<f64>, curator| {
        if let (Some(bound), Some(ours), Some(curator)) = (bound, ours, curator) {
            let curator: f64 = curator;
            let mut line = vec![id.to_owned(), floor.to_owned()];
            line.extend([bound, ours, curator, bound / curator, ours / curator].map(short));
            rows.push(line);
        }
    };
    let p5 =
        [("P5, us", ON_ZOOKEEPER, &BARE[..]), ("P5, us, not awaited", NOT_AWAITED, &[REPLACE])];
    for (name, ours, floors) in p5 {
        for (floor, requests) in floors {
            let ours = cycles(ours, 1, "cycle_p50_us");
            let bound = raw(1, &format!("{requests}_p50_us"));
            add(name, floor, bound, ours, cycles(CURATOR, 1, "cycle_p50_us"));
        }
    }
    for (floor, requests) in BARE {
        let ours = cycles(ON_ZOOKEEPER, 64, "cycles_per_s");
        let bound = raw(64, &format!("{requests}_per_s"));
        add("P6, cycles/s", floor, bound, ours, cycles(CURATOR, 64, "cycles_per_s"));
    }
    add(
        "P6, cycles/s, not awaited",
        REPLACE.0,
        raw(64, &format!("{}_per_s", REPLACE.1)),
        cycles(NOT_AWAITED, 64, "cycles_per_s"),
        cycles(CURATOR, 64, "cycles_per_s"),
    );
    for clients in [8, 64] {
        let both = [("", ON_ZOOKEEPER, BARE[0]), (", not awaited", NOT_AWAITED, REPLACE)];
        for (how, ours, (floor, requests)) in both {
            add(
                &format!("P7, hand-offs/s, {clients} clients{how}"),
                floor,
                raw(1, &format!("{requests}_per_s")),
                hand_offs(ours, clients),
                hand_offs(CURATOR, clients),
            );
        }
    }
    if rows.is_empty() {
        return;
    }
    page.line(
        "On Apache ZooKeeper the server is the bound. This is what the same client makes of the bare \
         requests that each lock needs, one after the other in each task: about what no lock on this \
         server can pass that waits for its release. A hand-off is a delete by the holder and, as \
         everybody wants the lock again, a create; the server syncs each by itself, also where the \
         one comes right behind the other: by then it is syncing the first. If nobody waits for the \
         release, the client makes one transaction of both (`docs/decisions/0010`).\n",
    );
    let head = ["", "bare requests", "bound", "ours", "Curator", "bound/Curator", "ours/Curator"];
    page.table(&head, &rows);
}
