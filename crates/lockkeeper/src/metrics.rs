//! Figures of locks, sessions and queues, for the facade [`metrics`](https://docs.rs/metrics): whichever recorder the
//! program installs gets them, and without one they are dropped.
//!
//! `docs/monitoring.md` lists the names ([`FIGURES`] has them too), and has alerts and a dashboard. All are
//! registered with the first client; call [`describe`] if the recorder is installed later than that.
//!
//! Counters and histograms are recorded as things happen. Gauges are set by [`update`] alone, and those of a queue
//! by [`Queue::inspect`](crate::Queue::inspect). No figure costs a request.
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
pub use lockkeeper_locks::figures::{name_locks, update};
