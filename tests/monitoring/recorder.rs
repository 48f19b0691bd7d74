//! A recorder of `metrics` that remembers everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};

/// Values by their names with labels, as `name{label=value}`. A histogram is the number of what was recorded, and
/// its sum is `name{...} sum`.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    values: BTreeMap<String, f64>,
    described: BTreeSet<String>,
}

impl Recorder {
    /// The value of a figure.
    pub(crate) fn value(&self, name: &str) -> f64 {
        let recorded = self.lock();
        let value = recorded.values.get(name);
        *value.unwrap_or_else(|| panic!("{name} is none of {:#?}", recorded.values))
    }

    /// The names of all that have a value, without labels.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let bare = |name: &String| name.split(['{', ' ']).next().unwrap_or(name).to_owned();
        self.lock().values.keys().map(bare).collect()
    }

    pub(crate) fn described(&self) -> BTreeSet<String> {
        self.lock().described.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> =
            key.labels().map(|it| format!("{}={}", it.key(), it.value())).collect();
        let name = match labels.is_empty() {
            true => key.name().to_owned(),
            false => format!("{}{{{}}}", key.name(), labels.join(",")),
        };
        self.lock().values.entry(name.clone()).or_default();
        Arc::new(Cell { name, recorder: self.clone() })
    }
}

struct Cell {
    name: String,
    recorder: Recorder,
}

impl Cell {
    fn change(&self, name: String, change: impl FnOnce(&mut f64)) {
        change(self.recorder.lock().values.entry(name).or_default());
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.change(self.name.clone(), |now| *now += f64::from(u32::try_from(value).unwrap()));
    }

    fn absolute(&self, value: u64) {
        self.change(self.name.clone(), |now| *now = f64::from(u32::try_from(value).unwrap()));
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.change(self.name.clone(), |now| *now += value);
    }

    fn decrement(&self, value: f64) {
        self.change(self.name.clone(), |now| *now -= value);
    }

    fn set(&self, value: f64) {
        self.change(self.name.clone(), |now| *now = value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(self.name.clone(), |now| *now += 1.0);
        self.change(format!("{} sum", self.name), |now| *now += value);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _unit: Option<Unit>, _description: SharedString) {
        self.lock().described.insert(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _unit: Option<Unit>, _description: SharedString) {
        self.lock().described.insert(key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _unit: Option<Unit>, _description: SharedString) {
        self.lock().described.insert(key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}
