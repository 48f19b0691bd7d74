//! Everything that can happen to data directories at a place, in any order: no transaction number that was reported to
//! a client is reported again for another transaction, and none is below an earlier one. Locks use these numbers as
//! fencing tokens.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_engine::{Durability, Engine, Existing, backup, check, restore};
use lockkeeper_wire::{CreateMode, Zxid};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::client::{Client, Ticket, create};

const TIMEOUT: Duration = Duration::from_secs(30);

/// An event at a place.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An engine that keeps its data, or one in memory, answers this many creates, and ends.
    Serve { durability: Durability, creates: u8, online_backup: bool, end: End },
    /// An engine copies the data.
    BackUp,
    /// The data is copied by hand (`cp -r`).
    Copy,
    /// One of all copies is restored here.
    Restore(usize),
    /// One of all copies is put here by hand. Files next to the directory stay.
    PutBack(usize),
    /// The directory is lost.
    Lose,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Orderly,
    /// With only the data that is in files at that moment.
    Killed,
}

fn step() -> impl Strategy<Value = Step> {
    let durability = prop_oneof![2 => Just(Durability::Os), 1 => Just(Durability::Memory)];
    let end = prop_oneof![Just(End::Orderly), Just(End::Killed)];
    let serve = (durability, 1..4_u8, prop::bool::weighted(0.3), end).prop_map(
        |(durability, creates, online_backup, end)| Step::Serve {
            durability,
            creates,
            online_backup,
            end,
        },
    );
    prop_oneof![
        6 => serve,
        1 => Just(Step::BackUp),
        1 => Just(Step::Copy),
        3 => any::<usize>().prop_map(Step::Restore),
        1 => any::<usize>().prop_map(Step::PutBack),
        1 => Just(Step::Lose),
    ]
}

/// Two independent places, and the copies that were made at both.
struct World {
    folder: TempDir,
    places: [Place; 2],
    copies: Vec<PathBuf>,
}

#[derive(Default)]
struct Place {
    /// The number reported last: here, or by the engines of a copy that was restored here.
    last: i64,
    /// The sessions of the present data, as they are at its next start.
    sessions: Vec<Ticket>,
    /// Sessions that have ended.
    over: Vec<Ticket>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, places: Default::default(), copies: Vec::new() }
    }

    fn data(&self, place: usize) -> PathBuf {
        self.folder.path().join(format!("place-{place}/data"))
    }

    fn floor(&self, place: usize) -> PathBuf {
        self.data(place).with_extension("floor")
    }

    fn new_copy(&self) -> PathBuf {
        self.folder.path().join(format!("copy-{}", self.copies.len()))
    }

    /// Performs a step, if it is possible.
    async fn take(&mut self, place: usize, step: Step) {
        let data = self.data(place);
        fs::create_dir_all(data.parent().unwrap()).unwrap();
        let has_data = check(&data).is_ok();
        let any = |copies: &[PathBuf], number: usize| {
            Some(copies.get(number % copies.len().max(1))?.clone())
        };
        match step {
            Step::Serve { durability, creates, online_backup, end } => {
                self.serve(place, durability, creates, online_backup, end).await;
            }
            Step::BackUp if has_data => {
                let copy = self.new_copy();
                backup(&data, &copy).unwrap();
                self.copies.push(copy);
            }
            Step::Copy if has_data => {
                let copy = self.new_copy();
                copy_by_hand(&data, &copy);
                self.copies.push(copy);
            }
            Step::Restore(number) => {
                let Some(copy) = any(&self.copies, number) else { return };
                let told = check(&copy).unwrap().last_zxid.0;
                restore(copy, &data, Existing::Replace, Some(Duration::ZERO)).unwrap();
                let place = &mut self.places[place];
                place.last = place.last.max(told);
                place.over.append(&mut place.sessions);
            }
            // Otherwise it could not be noticed, as the documentation states.
            Step::PutBack(number) if self.floor(place).exists() => {
                let Some(copy) = any(&self.copies, number) else { return };
                let epoch = check(&copy).unwrap().last_zxid.epoch();
                let _ = fs::remove_dir_all(&data);
                copy_by_hand(&copy, &data);
                // A backup is refused because of its mark. Other copies that are put back have none.
                let format = data.join("FORMAT");
                let text = fs::read_to_string(&format).unwrap();
                fs::write(&format, text.replace(" backup", "")).unwrap();

                let place = &mut self.places[place];
                place.sessions.clear();
                if epoch >= Zxid(place.last).epoch() {
                    // A copy of the present epoch is not noticed: its sessions are resumed.
                    place.over.clear();
                }
            }
            Step::Lose => {
                let _ = fs::remove_dir_all(&data);
                let place = &mut self.places[place];
                place.over.append(&mut place.sessions);
            }
            _ => {}
        }
    }

    async fn serve(
        &mut self,
        place: usize,
        durability: Durability,
        creates: u8,
        online_backup: bool,
        end: End,
    ) {
        let data = self.data(place);
        let builder = Engine::builder().data_dir(&data).durability(durability);
        let engine = builder.quiet_time(Duration::ZERO).start().await.unwrap();
        for ticket in &self.places[place].over {
            let (_, answer) = Client::resume(&engine, ticket, TIMEOUT);
            assert_eq!(answer.timeout_ms, 0, "a session lives on");
        }

        let mut client = Client::connect(&engine, TIMEOUT);
        for _ in 0..creates {
            client.send(&[create("/n-", CreateMode::EphemeralSequential)]);
            let (header, _) = client.reply().unwrap();
            let (token, last) = (header.zxid.0, self.places[place].last);
            assert!(token > last, "{token:#x} was reported after {last:#x}");
            assert!(token < 1 << 53, "{token:#x}");
            self.places[place].last = token;
        }
        if online_backup && durability != Durability::Memory {
            let copy = self.new_copy();
            engine.backup(&copy).await.unwrap();
            self.copies.push(copy);
        }

        let files = [data.clone(), self.floor(place)];
        let killed = match end {
            End::Killed => Some(Image::of(&files, self.folder.path())),
            End::Orderly => None,
        };
        engine.stop().await.unwrap();
        if let Some(image) = killed {
            image.put_back(&files);
        }
        let place = &mut self.places[place];
        match durability {
            Durability::Memory => place.over.push(client.ticket()),
            _ => place.sessions.push(client.ticket()),
        }
    }
}

/// The content of files at some moment.
struct Image {
    folder: TempDir,
}

impl Image {
    fn of(files: &[PathBuf; 2], beside: &Path) -> Self {
        let folder = tempfile::tempdir_in(beside).unwrap();
        let [data, floor] = files;
        copy_by_hand(data, &folder.path().join("data"));
        if floor.exists() {
            fs::copy(floor, folder.path().join("data.floor")).unwrap();
        }
        Self { folder }
    }

    fn put_back(&self, files: &[PathBuf; 2]) {
        let [data, floor] = files;
        let _ = fs::remove_dir_all(data);
        copy_by_hand(&self.folder.path().join("data"), data);
        let _ = fs::remove_file(floor);
        let kept = self.folder.path().join("data.floor");
        if kept.exists() {
            fs::copy(kept, floor).unwrap();
        }
    }
}

/// Copies files only: the sockets of a directory in use stay where they are. A missing directory is copied as missing.
pub(crate) fn copy_by_hand(from: &Path, to: &Path) {
    let Ok(entries) = from.read_dir() else { return };
    fs::create_dir(to).unwrap();
    for entry in entries.map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Few, unless more are requested: each starts about ten engines.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 100, ..ProptestConfig::default()
    })]

    #[test]
    fn no_token_is_told_twice_at_a_place(steps in vec((0..2_usize, step()), 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for (place, step) in steps {
                world.take(place, step).await;
            }
        });
    }
}
