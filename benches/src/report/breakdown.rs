//! Where the time goes: what bounds the figures, from numbers of the same run.

use super::markdown::{Markdown, short};
use super::not_awaited;
use super::sides::{
    ALWAYS, BARE, CURATOR, EVERYSEC, MANY_PROCESSES, MEMORY, NO_PERSISTENCE, ON_ZOOKEEPER, OS,
    SECOND_LOOK, SYNC,
};
use crate::baselines::{APPENDED, IN_PLACE, ONE_PROCESSOR, RECORD_BYTES, TWO_PROCESSORS};
use crate::results::{Entries, Side};

pub(super) fn write(page: &mut Markdown, entries: &Entries) {
    page.paragraph("## Where the time goes");
    if let Some(baselines) = Baselines::of(entries) {
        one_task(page, entries, &baselines);
    }
    many_tasks(page, entries);
    zookeeper(page, entries);
    memory(page, entries);
    waiters(page, entries);
}

fn names(side: Side<'_>) -> Vec<String> {
    vec![side.0.to_owned(), side.1.to_owned()]
}

/// Medians of what was measured beside the turns of one task.
struct Baselines {
    in_place: f64,
    appended: f64,
    one_processor: f64,
    two_processors: Option<f64>,
}

impl Baselines {
    fn of(entries: &Entries) -> Option<Self> {
        let record = |side| entries.median("cycles", side, 1, "record_p50_us");
        let round_trip = |side| entries.median("cycles", side, 1, "round_trip_p50_us");
        Some(Self {
            in_place: record(IN_PLACE)?,
            appended: record(APPENDED)?,
            one_processor: round_trip(ONE_PROCESSOR)?,
            two_processors: round_trip(TWO_PROCESSORS),
        })
    }

    fn round_trip(&self) -> f64 {
        self.two_processors.unwrap_or(self.one_processor)
    }
}

/// One acquire of one task, against what the machine itself took in the same minutes.
fn one_task(page: &mut Markdown, entries: &Entries, baselines: &Baselines) {
    let Baselines { in_place, appended, one_processor, .. } = *baselines;
    let waking = baselines.round_trip() - one_processor;
    let number = |side, metric| entries.median("cycles", side, 1, metric);

    // What each waits for on the disk.
    let sides = [
        (MEMORY, 0.0),
        (OS, 0.0),
        (SYNC, in_place),
        (NO_PERSISTENCE, 0.0),
        (EVERYSEC, 0.0),
        (ALWAYS, appended),
    ];
    let line = |(side, disk)| Some((names(side), (side, disk, number(side, "acquire_p50_us")?)));
    let lines: Vec<(Vec<String>, (Side<'_>, f64, f64))> =
        sides.into_iter().filter_map(line).collect();
    if lines.is_empty() {
        return;
    }

    page.paragraph(&one_task_in_words(baselines));
    page.numbers(
        &["system", "configuration"],
        &lines,
        &[
            ("acquire p50, us", &|line| Some(line.2)),
            ("of it the disk", &|line| Some(line.1)),
            ("system calls and loopback", &|_| Some(one_processor)),
            ("waking another processor", &|_| Some(waking)),
            ("the rest", &|line| Some(line.2 - line.1 - one_processor - waking)),
            ("client, us of processor time a cycle", &|line| number(line.0, "harness_cpu_us")),
            ("all else", &|line| number(line.0, "other_cpu_us")),
        ],
    );

    let acquire = |side| number(side, "acquire_p50_us");
    if let (Some(ours), Some(theirs)) = (acquire(SYNC), acquire(ALWAYS)) {
        let floor = in_place + baselines.round_trip();
        let their_floor = appended + baselines.round_trip();
        page.paragraph(&format!(
            "For P3 that means: with the disk and the loopback alone, and nothing else on either \
             side, an acquire under `sync` would take {} us and Redis's with `always` {} us, a ratio \
             of {}. Of what was measured, {} us against {} us, a ratio of {}, the disk is {} % on our \
             side and {} % on Redis's.",
            short(floor),
            short(their_floor),
            short(floor / their_floor),
            short(ours),
            short(theirs),
            short(ours / theirs),
            short(100.0 * in_place / ours),
            short(100.0 * appended / theirs),
        ));
    }
}

fn one_task_in_words(baselines: &Baselines) -> String {
    let one = short(baselines.one_processor);
    let loopback = match baselines.two_processors {
        Some(two) => format!(
            "{} us with each on a processor of its own, {one} us with both on one, where no message \
             has to wake another processor",
            short(two)
        ),
        None => format!("{one} us, both on the only processor"),
    };
    format!(
        "With one task, an acquire waits for one round trip and, where the server syncs before it \
         answers, for one record on the disk. Both baselines were measured beside the turns of one \
         task; the figures are medians. A round trip between a plain client and an echo: {loopback}. \
         A record of {RECORD_BYTES} bytes with its `fdatasync`: {} us in a file whose length stays \
         the same, as the engine's log does, and {} us at the end of a file that grows, as Redis's \
         does. P9 is held against the echo on two processors where there are two: the engine and \
         its client are on two, and the scheduler may put an echo on either.\n\n\
         The echo on one processor is the system calls and the loopback; the waking is what it takes \
         longer on two. The rest is what is left of the acquire. A negative rest means that the \
         server is faster than the baseline. The echo sleeps between two messages, while the engine \
         spins for a moment before it sleeps (`docs/decisions/0007`) and then need not be woken; \
         the scheduler may also put a server on its client's processor. Spinning is processor time, \
         and counts under \u{201c}all else\u{201d}.",
        short(baselines.in_place),
        short(baselines.appended)
    )
}

/// What a cycle takes of the processors where many tasks share a connection.
fn many_tasks(page: &mut Markdown, entries: &Entries) {
    // A lock of ZooKeeper's kind is created, listed and deleted; Redis's is set and deleted.
    let sides = [
        (MEMORY, 3.0),
        (OS, 3.0),
        (SYNC, 3.0),
        (NO_PERSISTENCE, 2.0),
        (EVERYSEC, 2.0),
        (ALWAYS, 2.0),
    ];
    let number = |side, metric| entries.median("cycles", side, 256, metric);
    let line =
        |(side, requests)| Some((names(side), (side, requests, number(side, "cycles_per_s")?)));
    let lines: Vec<(Vec<String>, (Side<'_>, f64, f64))> =
        sides.into_iter().filter_map(line).collect();
    if lines.is_empty() {
        return;
    }

    page.paragraph(
        "At 256 tasks the processors are the bound. The network and, with group commit, the disk \
         hardly matter. A lock in the order of arrival takes three requests (create, list, delete), \
         one in Redis two (set, delete). At the same cost of a request it makes two thirds of the \
         cycles: requests a second compare the programs, cycles a second compare the locks. The \
         listing cannot be left out: the answer to a create names the new node, and not the \
         contenders ahead of it. The number of the client's last node would tell that nobody came \
         since, but only while the parent is the same one, and no answer says that. It does where \
         that node goes in the same transaction, as when the release is not awaited \
         (`docs/decisions/0012`).",
    );
    page.numbers(
        &["system", "configuration"],
        &lines,
        &[
            ("cycles/s", &|line| Some(line.2)),
            ("requests of a cycle", &|line| Some(line.1)),
            ("requests/s", &|line| Some(line.1 * line.2)),
            ("client, us of processor time a cycle", &|line| number(line.0, "harness_cpu_us")),
            ("all else", &|line| number(line.0, "other_cpu_us")),
        ],
    );
    page.paragraph(
        "The client is one thread of the harness: a million divided by its time is the most cycles \
         that it can make. \u{201c}All else\u{201d} is the server, and what the kernel does for both.",
    );
}

/// What bare requests in place of a lock make of the same ZooKeeper server.
fn zookeeper(page: &mut Markdown, entries: &Entries) {
    let metrics = [
        ("P5, cycle p50, us", "cycles", 1, "cycle_p50_us"),
        ("P6, cycles/s", "cycles", 64, "cycles_per_s"),
        ("P7, hand-offs/s, 8 clients", "hand-offs", 8, "hand_offs_per_s"),
        ("P7, hand-offs/s, 64 clients", "hand-offs", 64, "hand_offs_per_s"),
    ];
    let releases = [
        ("", [BARE, SECOND_LOOK, ON_ZOOKEEPER]),
        (", not awaited", [not_awaited::BARE, not_awaited::SECOND_LOOK, not_awaited::ON_ZOOKEEPER]),
    ];
    let mut lines = Vec::new();
    for (what, scenario, tasks, metric) in metrics {
        let median = |side| entries.median(scenario, side, tasks, metric);
        let Some(curator) = median(CURATOR) else { continue };
        for (how, sides) in releases {
            // Where nobody waits, there is no second look.
            let ours = sides.map(median);
            if ours.iter().any(Option::is_some) {
                lines.push((vec![format!("{what}{how}")], (ours, curator)));
            }
        }
    }
    if lines.is_empty() {
        return;
    }

    page.paragraph(
        "On Apache ZooKeeper the server is the bound. In place of a lock, the same client sends it \
         the bare requests that every lock in the order of arrival needs if each waiter has a node: \
         a create with a listing behind it, a watch on the node ahead if there is one, its event, a \
         delete. If the release is not awaited, the delete and the next create are one transaction, \
         for which the server syncs once (`docs/decisions/0010`). If the queue was known at the \
         client's own turn, and the number of the new node tells that nobody has come since, there \
         is no listing (`docs/decisions/0012`). The bare client does not watch its own node, and \
         does not survive a lost connection.",
    );
    page.paragraph(
        "It takes the end of the node ahead for its own turn. A lock cannot: the node ahead may \
         have left the middle of the queue, with others before it. So a lock lists once more, and \
         this second look is a whole round trip between one holder and the next: the columns \
         \u{201c}second look\u{201d}. It is the bound for a lock in the order of arrival of which each \
         release wakes one waiter, by one event.",
    );
    type Line = ([Option<f64>; 3], f64);
    let against = |line: &Line, side: usize| line.0[side].map(|number| number / line.1);
    page.numbers::<Line>(
        &[""],
        &lines,
        &[
            ("bare requests", &|line| line.0[0]),
            ("second look", &|line| line.0[1]),
            ("ours", &|line| line.0[2]),
            ("Curator", &|line| Some(line.1)),
            ("bare/Curator", &|line| against(line, 0)),
            ("second look/Curator", &|line| against(line, 1)),
            ("ours/Curator", &|line| against(line, 2)),
        ],
    );
}

/// What of a server's memory is its own.
fn memory(page: &mut Markdown, entries: &Entries) {
    let number = |side, when: &str, part: &str| {
        entries.median("resources", side, 0, &format!("{when}_{part}mib"))
    };
    let parts = |side, when: &str| {
        let part = |part| number(side, when, part);
        Some([part("")?, part("mapped_")?, part("private_")?])
    };
    let mut lines = Vec::new();
    for (name, side) in
        [("engine, sync", SYNC), ("ZooKeeper", ON_ZOOKEEPER), ("redis", NO_PERSISTENCE)]
    {
        for (when, said) in [("idle", "just started"), ("after_load", "after the load")] {
            let line = |parts| (vec![name.to_owned(), said.to_owned()], parts);
            lines.extend(parts(side, when).map(line));
        }
    }
    if lines.is_empty() {
        return;
    }

    page.paragraph(
        "The memory of P11 in its two parts. Pages of files are those of the program and its \
         libraries: the kernel shares them among all processes that use the file, and takes them \
         back when it needs room. Private memory is heap and stacks. After the load, the heap \
         includes what the allocator keeps for the next one.",
    );
    page.numbers::<[f64; 3]>(
        &["server", "when"],
        &lines,
        &[
            ("resident, MiB", &|parts| Some(parts[0])),
            ("pages of files", &|parts| Some(parts[1])),
            ("private", &|parts| Some(parts[2])),
        ],
    );
    if let (Some(theirs), Some([ours, mapped, private])) =
        (number(ON_ZOOKEEPER, "after_load", ""), parts(SYNC, "after_load"))
    {
        page.paragraph(&format!(
            "A twentieth of ZooKeeper's memory after the load is {} MiB. The engine has {} MiB, of \
             which {} MiB are pages of files and {} MiB its own.",
            short(theirs / 20.0),
            short(ours),
            short(mapped),
            short(private)
        ));
    }
}

/// Why a waiter of another process costs more the more there are.
fn waiters(page: &mut Markdown, entries: &Entries) {
    let ends = |metric| {
        let curve = entries.curve("waiters", MANY_PROCESSES, metric);
        let (&few, &many) = (curve.first()?, curve.last()?);
        (few.0 < many.0).then_some((few, many))
    };
    let (Some(bytes), Some(time), Some(next)) =
        (ends("bytes_per_waiter"), ends("time_per_waiter_us"), ends("next_holder_us"))
    else {
        return;
    };
    let slope = |(few, many): ((usize, f64), (usize, f64))| {
        short((many.1 - few.1) / (many.0 - few.0) as f64)
    };
    page.paragraph(&format!(
        "P13 has two curves. Within one process, tasks wait in a queue of their own, and only the \
         first of them is in the one on the server: a new waiter sends nothing. A waiter of another \
         process finds its place by one listing of the whole queue, because nothing else tells who \
         is ahead, so its cost grows with the queue: from {} waiters to {}, by {} bytes (a name of \
         55 characters, and its length) and {} us for each waiter that is there already. In this \
         scenario all processes are one program on the engine's machine, which has to read all \
         these listings. A release is one event in a queue of any length: the next holder has the \
         lock after {} and {} us.",
        short(bytes.0.0 as f64),
        short(bytes.1.0 as f64),
        slope(bytes),
        slope(time),
        short(next.0.1),
        short(next.1.1),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    type Number<'a> = (&'a str, Side<'a>, usize, &'a str, f64);

    const NOTHING: &str = "## Where the time goes\n";

    fn written(numbers: &[Number<'_>]) -> String {
        let mut page = Markdown::default();
        write(&mut page, &Entries::from_numbers(numbers));
        page.finish()
    }

    #[track_caller]
    fn has(page: &str, parts: &[&str]) {
        for part in parts {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }

    const BASELINES: [Number<'_>; 4] = [
        ("cycles", IN_PLACE, 1, "record_p50_us", 95.0),
        ("cycles", APPENDED, 1, "record_p50_us", 135.0),
        ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 17.0),
        ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 60.0),
    ];

    fn turn<'a>(side: Side<'a>, acquire: f64) -> [Number<'a>; 3] {
        [
            ("cycles", side, 1, "acquire_p50_us", acquire),
            ("cycles", side, 1, "harness_cpu_us", 20.0),
            ("cycles", side, 1, "other_cpu_us", 30.0),
        ]
    }

    #[test]
    fn an_acquire_is_disk_and_loopback_and_a_rest_which_may_be_negative() {
        let turns = [turn(MEMORY, 26.0), turn(SYNC, 165.0), turn(ALWAYS, 200.0)].concat();
        let page = written(&[&BASELINES[..], &turns].concat());
        has(
            &page,
            &[
                "| lockkeeper | engine, memory | 26 | 0 | 17 | 43 | -34 | 20 | 30 |",
                "| lockkeeper | engine, sync | 165 | 95 | 17 | 43 | 10 | 20 | 30 |",
                "| redis | appendfsync always | 200 | 135 | 17 | 43 | 5 | 20 | 30 |",
                "155 us and Redis's with `always` 195 us, a ratio of 0.795",
                "165 us against 200 us, a ratio of 0.825",
                "60 us with each on a processor of its own, 17 us with both on one,",
            ],
        );
    }

    #[test]
    fn one_processor_has_one_round_trip_and_a_lone_side_no_ratio() {
        let page = written(&[&BASELINES[..3], &turn(SYNC, 165.0)].concat());
        has(
            &page,
            &[
                "| lockkeeper | engine, sync | 165 | 95 | 17 | 0 | 53 |",
                "17 us, both on the only processor.",
            ],
        );
        assert!(!page.contains("For P3"), "{page}");
    }

    #[test]
    fn without_baselines_or_turns_there_is_nothing_to_say() {
        assert_eq!(written(&turn(SYNC, 165.0)), NOTHING);
        assert_eq!(written(&BASELINES), NOTHING);
    }

    #[test]
    fn resident_memory_is_shown_in_its_parts_as_far_as_it_was_measured() {
        let number = |side, metric, value| ("resources", side, 0, metric, value);
        let ours = [
            number(SYNC, "idle_mib", 8.0),
            number(SYNC, "idle_mapped_mib", 5.0),
            number(SYNC, "idle_private_mib", 3.0),
            number(SYNC, "after_load_mib", 17.0),
            number(SYNC, "after_load_mapped_mib", 6.0),
            number(SYNC, "after_load_private_mib", 11.0),
        ];
        let theirs = [
            number(ON_ZOOKEEPER, "after_load_mib", 240.0),
            number(ON_ZOOKEEPER, "after_load_mapped_mib", 30.0),
            number(ON_ZOOKEEPER, "after_load_private_mib", 210.0),
        ];
        let page = written(&[&ours[..], &theirs].concat());
        has(
            &page,
            &[
                "| engine, sync | just started | 8 | 5 | 3 |",
                "| engine, sync | after the load | 17 | 6 | 11 |",
                "| ZooKeeper | after the load | 240 | 30 | 210 |",
                "after the load is 12 MiB. The engine has 17 MiB, of which 6 MiB are pages of files \
                 and 11 MiB its own.",
            ],
        );
        assert!(!page.contains("| ZooKeeper | just started"), "{page}");
        assert!(!written(&ours).contains("twentieth"));
    }

    #[test]
    fn each_that_is_there_already_costs_its_name() {
        let waiters = |count, metric, value| ("waiters", MANY_PROCESSES, count, metric, value);
        let numbers = [
            waiters(10_000, "bytes_per_waiter", 592_250.0),
            waiters(10, "bytes_per_waiter", 2_840.0),
            waiters(10_000, "time_per_waiter_us", 5_035.0),
            waiters(10, "time_per_waiter_us", 40.0),
            waiters(10_000, "next_holder_us", 440.0),
            waiters(10, "next_holder_us", 341.0),
        ];
        has(
            &written(&numbers),
            &["from 10 waiters to 10,000, by 59 bytes", "0.5 us for each", "after 341 and 440 us"],
        );
        assert_eq!(written(&numbers[..5]), NOTHING);
    }
}
