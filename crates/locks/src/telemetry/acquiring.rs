//! A call that asks for a lock: its span, its outcome and its metrics.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use lockkeeper_client::{Client, Instant, ZnodePath};
use tracing::field::Empty;
use tracing::{Level, Span, debug, debug_span};

use crate::contender::node::Contender;
use crate::contender::order::{Place, WaitQueue};
use crate::error::AcquireError;
#[cfg(feature = "metrics")]
use crate::telemetry::lock_metrics;
use crate::telemetry::metric_kind::MetricKind;
use crate::token::FencingToken;

/// The tokens that a call has received.
pub(crate) enum Tokens {
    /// The call did not receive a lock.
    None,
    One(FencingToken),
    Several(Vec<FencingToken>),
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::One(token) => token.fmt(f),
            Self::Several(tokens) => {
                let tokens: Vec<_> = tokens.iter().map(FencingToken::to_string).collect();
                f.write_str(&tokens.join(", "))
            }
        }
    }
}

/// The result of a call.
pub(crate) trait Granted {
    fn tokens(&self) -> Tokens;
}

impl<T: Granted> Granted for Option<T> {
    fn tokens(&self) -> Tokens {
        self.as_ref().map_or(Tokens::None, T::tokens)
    }
}

/// The span of a call.
#[derive(Debug)]
pub(crate) struct AcquireSpan(Span);

impl AcquireSpan {
    /// Records the position in the queue of a contender that has just entered. The first has position 1.
    pub(crate) fn entered(&self, queue: &WaitQueue, contender: &Contender) {
        if self.0.is_disabled() {
            return;
        }
        let name = contender.name();
        let is_own = |place: &Place| Some(place.name.as_str()) == name;
        if let Some(ahead) = queue.places().iter().position(is_own) {
            self.0.record("position", ahead + 1);
        }
    }
}

/// A call that asks for a lock. If it is dropped before it has ended, the caller has given up.
pub(crate) struct Acquiring<'a> {
    client: &'a Client,
    #[cfg(feature = "metrics")]
    first: &'a ZnodePath,
    /// The lock, or all locks.
    lock: &'a (dyn fmt::Display + Sync),
    metric_kind: MetricKind,
    span: AcquireSpan,
    /// `None` if the duration is not recorded.
    since: Option<Instant>,
    has_ended: AtomicBool,
    #[cfg(feature = "metrics")]
    slot: lock_metrics::Slot,
}

impl<'a> Acquiring<'a> {
    pub(crate) fn new(
        client: &'a Client,
        path: &'a ZnodePath,
        metric_kind: impl Into<MetricKind>,
    ) -> Self {
        Self::several(client, path, path, metric_kind.into())
    }

    /// The same for several locks, displayed as `lock`.
    pub(crate) fn several(
        client: &'a Client,
        first: &'a ZnodePath,
        lock: &'a (dyn fmt::Display + Sync),
        metric_kind: MetricKind,
    ) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = first;
        let span = debug_span!(
            "acquire",
            %lock,
            kind = metric_kind.name(),
            position = Empty,
            outcome = Empty,
            token = Empty,
            waited_seconds = Empty
        );
        let is_recorded = cfg!(feature = "metrics") || tracing::enabled!(Level::DEBUG);
        let since = is_recorded.then(|| client.now());
        Self {
            client,
            #[cfg(feature = "metrics")]
            first,
            lock,
            metric_kind,
            span: AcquireSpan(span),
            since,
            has_ended: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            slot: lock_metrics::Slot::waiting(metric_kind, first, since.unwrap_or_default()),
        }
    }

    pub(crate) fn span(&self) -> &AcquireSpan {
        &self.span
    }

    /// Polls the call within its span, and records how it ends. The caller pins the call, and the result is
    /// passed through, because moving them costs more than everything else here.
    pub(crate) fn settle<T: Granted>(
        &self,
        mut call: Pin<&mut impl Future<Output = Result<T, AcquireError>>>,
    ) -> impl Future<Output = Result<T, AcquireError>> {
        poll_fn(move |context| {
            // Entered for each poll, so that other work does not run within the span.
            let polled = self.span.0.in_scope(|| call.as_mut().poll(context));
            if self.since.is_some()
                && let Poll::Ready(result) = &polled
            {
                self.has_ended.store(true, Ordering::Relaxed);
                match result {
                    Ok(granted) => self.ended(&granted.tokens()),
                    Err(error) => self.refused("failed", Some(error)),
                }
            }
            polled
        })
    }

    fn ended(&self, tokens: &Tokens) {
        if let Tokens::None = tokens {
            return self.refused("taken", None);
        }
        let waited = self.waited();
        #[cfg(feature = "metrics")]
        self.slot.granted(self.metric_kind, self.first, waited);

        let Self { span: AcquireSpan(span), lock, metric_kind, .. } = self;
        span.record("outcome", "granted").record("waited_seconds", waited);
        if !span.is_disabled() {
            span.record("token", tracing::field::display(tokens));
        }
        span.in_scope(|| {
            debug!(%lock, kind = metric_kind.name(), token = %tokens, waited_seconds = waited, "granted");
        });
    }

    fn refused(&self, outcome: &'static str, error: Option<&AcquireError>) {
        #[cfg(feature = "metrics")]
        self.slot.refused(self.metric_kind, self.first, outcome);

        let waited = self.waited();
        let Self { span: AcquireSpan(span), lock, metric_kind, .. } = self;
        span.record("outcome", outcome).record("waited_seconds", waited);
        let error = error.map(tracing::field::display);
        span.in_scope(|| {
            let kind = metric_kind.name();
            debug!(%lock, kind, outcome, error, waited_seconds = waited, "not acquired");
        });
    }

    /// How long the call has waited, in seconds.
    fn waited(&self) -> f64 {
        self.since.map_or(0.0, |since| self.client.now().since(since).as_secs_f64())
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if self.since.is_some() && !self.has_ended.load(Ordering::Relaxed) {
            self.refused("given_up", None);
        }
    }
}
