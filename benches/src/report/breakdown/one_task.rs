//! One acquire of one task, against what the machine itself took in the same minutes.

use crate::book::Book;
use crate::floors::{APPENDED, IN_PLACE, ONE_PROCESSOR, RECORD_BYTES, TWO_PROCESSORS};
use crate::report::page::{Page, short};
use crate::targets::{ALWAYS, EVERYSEC, MEMORY, NO_PERSISTENCE, OS, SYNC};

/// A system and its configuration.
type Who = (&'static str, &'static str);

/// Who is broken down, and what an acquire waits for on the disk, if for anything.
const SYSTEMS: [(Who, Option<Who>); 6] = [
    (MEMORY, None),
    (OS, None),
    (SYNC, Some(IN_PLACE)),
    (NO_PERSISTENCE, None),
    (EVERYSEC, None),
    (ALWAYS, Some(APPENDED)),
];

pub(super) fn write(page: &mut Page, book: &Book) {
    let Some(floors) = Floors::of(book) else { return };
    let rows: Vec<Vec<String>> =
        SYSTEMS.into_iter().filter_map(|(who, disk)| floors.line(book, who, disk)).collect();
    if rows.is_empty() {
        return;
    }
    page.line(&floors.said());
    let head = [
        "system",
        "configuration",
        "acquire p50, us",
        "of it the disk",
        "system calls and loopback",
        "waking another processor",
        "the rest",
        "client, us of processor time a cycle",
        "all else",
    ];
    page.table(&head, &rows);
    if let Some(bound) = floors.bound(book) {
        page.line(&bound);
    }
}

/// Medians of what was measured beside the turns of one task.
struct Floors {
    in_place: f64,
    appended: f64,
    one_processor: f64,
    two_processors: Option<f64>,
}

impl Floors {
    fn of(book: &Book) -> Option<Self> {
        let record = |who| book.median("cycles", who, 1, "record_p50_us");
        let round_trip = |who| book.median("cycles", who, 1, "round_trip_p50_us");
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

    fn disk(&self, disk: Option<Who>) -> f64 {
        match disk {
            Some(IN_PLACE) => self.in_place,
            Some(_) => self.appended,
            None => 0.0,
        }
    }

    fn line(&self, book: &Book, who: Who, disk: Option<Who>) -> Option<Vec<String>> {
        let number = |metric| book.median("cycles", who, 1, metric);
        let acquire = number("acquire_p50_us")?;
        let (disk, loopback) = (self.disk(disk), self.one_processor);
        let waking = self.round_trip() - loopback;
        let rest = acquire - disk - loopback - waking;
        let (client, others) = (number("harness_cpu_us")?, number("other_cpu_us")?);
        let mut line = vec![who.0.to_owned(), who.1.to_owned()];
        line.extend([acquire, disk, loopback, waking, rest, client, others].map(short));
        Some(line)
    }

    fn said(&self) -> String {
        let (in_place, appended) = (short(self.in_place), short(self.appended));
        let one = short(self.one_processor);
        let loopback = match self.two_processors {
            Some(two) => format!(
                "{} us each on a processor of its own, {one} us both on one, where no message has \
                 to wake another processor",
                short(two)
            ),
            None => format!("{one} us, both on the only processor"),
        };
        format!(
            "With one task, an acquire waits for one round trip and, where the server syncs before \
             it answers, for one record on the disk. Both were measured beside the turns of one \
             task; medians. A round trip of a plain client and an echo: {loopback}. A record of \
             {RECORD_BYTES} bytes with its `fdatasync`: {in_place} us in a file that is as long as \
             ever, as the engine's log is, and {appended} us at the end of one that grows, as \
             Redis's is. P9 is held against the echo on two processors where there are two, as the \
             engine and its client are on two, and where the scheduler happens to put an echo is \
             no measure.\n\n\
             The echo on one processor is the system calls and the loopback; what it takes longer \
             on two is the waking. The rest is what is left of the acquire. It is less than nothing \
             where a server is quicker than the echo, which sleeps between two messages on its own \
             processor: the engine looks out for a moment before it sleeps (`docs/decisions/0007`) \
             and need not be woken then, and the scheduler may put any server on its client's \
             processor. The looking out is processor time as well, under \u{201c}all else\u{201d}.\n"
        )
    }

    /// What is left of P3 where nobody takes more than the floors.
    fn bound(&self, book: &Book) -> Option<String> {
        let acquire = |who| book.median("cycles", who, 1, "acquire_p50_us");
        let (ours, theirs) = (acquire(SYNC)?, acquire(ALWAYS)?);
        let loopback = self.round_trip();
        let (floor, their_floor) = (self.in_place + loopback, self.appended + loopback);
        Some(format!(
            "For P3 that means: with the disk and the loopback alone, and nothing else on either \
             side, an acquire under `sync` would take {} us and Redis's with `always` {} us, a ratio \
             of {}. Of what was measured, {} us against {} us, a ratio of {}, the disk is {} % on our \
             side and {} % on Redis's.\n",
            short(floor),
            short(their_floor),
            short(floor / their_floor),
            short(ours),
            short(theirs),
            short(ours / theirs),
            short(100.0 * self.in_place / ours),
            short(100.0 * self.appended / theirs),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Number;

    fn written(numbers: &[Number<'_>]) -> String {
        let mut page = Page::default();
        write(&mut page, &Book::of(numbers));
        page.into()
    }

    fn number<'a>(who: (&'a str, &'a str), metric: &'a str, value: f64) -> Number<'a> {
        ("cycles", who, 1, metric, value)
    }

    const FLOORS: [Number<'_>; 4] = [
        ("cycles", IN_PLACE, 1, "record_p50_us", 95.0),
        ("cycles", APPENDED, 1, "record_p50_us", 135.0),
        ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 17.0),
        ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 60.0),
    ];

    fn turn<'a>(who: (&'a str, &'a str), acquire: f64) -> [Number<'a>; 3] {
        [
            number(who, "acquire_p50_us", acquire),
            number(who, "harness_cpu_us", 20.0),
            number(who, "other_cpu_us", 30.0),
        ]
    }

    #[test]
    fn an_acquire_is_disk_and_loopback_and_a_rest_which_may_be_negative() {
        let numbers =
            [&FLOORS[..], &turn(MEMORY, 26.0), &turn(SYNC, 165.0), &turn(ALWAYS, 200.0)].concat();
        let page = written(&numbers);
        for line in [
            "| lockkeeper | engine, memory | 26 | 0 | 17 | 43 | -34 | 20 | 30 |",
            "| lockkeeper | engine, sync | 165 | 95 | 17 | 43 | 10 | 20 | 30 |",
            "| redis | appendfsync always | 200 | 135 | 17 | 43 | 5 | 20 | 30 |",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(
            page.contains("155 us and Redis's with `always` 195 us, a ratio of 0.795"),
            "{page}"
        );
        assert!(page.contains("165 us against 200 us, a ratio of 0.825"), "{page}");
        assert!(
            page.contains("60 us each on a processor of its own, 17 us both on one,"),
            "{page}"
        );
    }

    #[test]
    fn one_processor_has_one_round_trip_and_a_lone_side_no_ratio() {
        let page = written(&[&FLOORS[..3], &turn(SYNC, 165.0)].concat());
        assert!(page.contains("| lockkeeper | engine, sync | 165 | 95 | 17 | 0 | 53 |"), "{page}");
        assert!(page.contains("17 us, both on the only processor."), "{page}");
        assert!(!page.contains("For P3"), "{page}");
    }

    #[test]
    fn without_floors_or_turns_there_is_nothing_to_say() {
        assert_eq!(written(&turn(SYNC, 165.0)), "");
        assert_eq!(written(&FLOORS), "");
    }
}
