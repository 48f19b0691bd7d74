//! Picks among a hundred instances of different weights, each with the end of its call.

use std::hint::black_box;
use std::sync::Arc;

use lockkeeper::{Candidate, Instant, Pick, Picker};

struct Server {
    id: String,
    weight: u32,
}

impl Candidate for Server {
    fn id(&self) -> &str {
        &self.id
    }

    fn weight(&self) -> u32 {
        self.weight
    }
}

pub(crate) fn run(how: Pick<'_>, iterations: u32) {
    let picker = Picker::builder().seed(42).clock(Instant::default).build();
    picker.update((0..100).map(|number| {
        Arc::new(Server { id: format!("10.0.0.{number}:80"), weight: 1 + number % 7 })
    }));
    for _ in 0..iterations {
        drop(black_box(picker.pick(black_box(how))));
    }
}
