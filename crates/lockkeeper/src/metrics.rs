//! Metrics of locks, sessions and queues, for the facade [`metrics`](https://docs.rs/metrics). The recorder
//! that the program installs receives them; without a recorder they are dropped.
//!
//! `docs/monitoring.md` lists the names (as does [`FIGURES`]), and has alerts and a dashboard. All metrics
//! are registered with the first client; call [`describe`] if the recorder is installed later.
//!
//! Counters and histograms are recorded when events happen. Gauges are set only by [`update`], and those of a
//! queue by [`Queue::inspect`](crate::Queue::inspect). Metrics do not make requests.
//!
//! # Examples
//!
//! With the crate `metrics-exporter-prometheus`, in the handler of `/metrics`:
//!
//! ```text
//! let prometheus = PrometheusBuilder::new().install_recorder()?;   // before the first client
//! ...
//! lockkeeper::metrics::update();
//! prometheus.render()
//! ```

#[doc(inline)]
pub use lockkeeper_client::metrics::{FIGURES, Figure, FigureKind, describe};
#[doc(inline)]
pub use lockkeeper_locks::lock_metrics::{name_locks, update};
