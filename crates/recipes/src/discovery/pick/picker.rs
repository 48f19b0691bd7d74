//! [`Picker`]: picks an instance for each call, and learns from the outcomes.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Clock, Instant};

use crate::discovery::pick::balancer::{Balancer, InstanceLoad, Ticket};
use crate::discovery::pick::candidate::{Candidate, Pick, PickError};
use crate::discovery::pick::health::{CallVerdict, Ejection};

type Now = Box<dyn Fn() -> Instant + Send + Sync>;

/// Picks an instance of one service for each call, and learns from the outcomes. Clones share all state.
///
/// # Guarantees
///
/// - Only instances of the last [`Picker::update`] are picked, and never one of weight 0.
/// - An instance whose calls fail is excluded for growing pauses; but never so many at once that the
///   [cap](Ejection::at_most_percent) is exceeded, and never the last one.
/// - The state of an instance is kept over updates, and dropped when the instance leaves.
///
/// # Not guaranteed
///
/// - The load from other clients is seen only as latency.
/// - An instance that has left is picked until the update that removes it.
///
/// # Cost
///
/// - A pick costs no round trip and no allocation. It takes at most 100 ns with 100 instances, and a few times that
///   with [`Pick::Key`].
/// - An update takes O(n log n), and blocks picks.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use lockkeeper::{Candidate, Pick, PickError, Picker};
///
/// struct Server(&'static str);
///
/// impl Candidate for Server {
///     fn id(&self) -> &str {
///         self.0
///     }
///
///     fn weight(&self) -> u32 {
///         1
///     }
/// }
///
/// let picker = Picker::builder().build();
/// picker.update([Arc::new(Server("10.0.0.1:80")), Arc::new(Server("10.0.0.2:80"))]);
///
/// let call = picker.pick(Pick::PowerOfTwo)?;
/// let answer: Result<u32, &str> = Err("no connection"); // Of a request to call.instance().0
/// assert_eq!(call.outcome(answer), Err("no connection"));
/// # Ok::<(), PickError>(())
/// ```
pub struct Picker<T: Candidate> {
    shared: Arc<PickerInner<T>>,
}

struct PickerInner<T> {
    now: Now,
    balancer: Mutex<Balancer<T>>,
}

/// Options of a [`Picker`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct PickerBuilder<T> {
    zone: Option<String>,
    ejection: Ejection,
    seed: Option<u64>,
    now: Option<Now>,
    candidates: PhantomData<fn(T)>,
}

impl<T: Candidate> PickerBuilder<T> {
    lockkeeper_client::setters! {
        /// Sets the zone of this client. Its instances get all calls as long as one of them takes calls; otherwise,
        /// and always for [`Pick::Key`], instances of all zones do. Default: none.
        ///
        /// An ejected instance of another zone gets one call after each pause, as it would in this zone: otherwise
        /// it would stay ejected as long as this zone answers, and count against [`Ejection::at_most_percent`].
        ///
        /// A zone with few instances and many clients has a higher load than others.
        pub fn zone(self, zone: impl Into<String>) => self.zone = Some(zone.into());

        /// Sets when an instance is ejected because its calls fail, and for how long. Default:
        /// [`Ejection::default`].
        pub fn ejection(self, ejection: Ejection) => self.ejection = ejection;

        /// Sets the seed of the random numbers, so that a run is reproducible. Default: a random seed for each
        /// picker.
        pub fn seed(self, seed: u64) => self.seed = Some(seed);

        /// Sets the clock that measures latency and pauses. It must not go back. Default: [`Clock::now`].
        pub fn clock(self, now: impl Fn() -> Instant + Send + Sync + 'static) =>
            self.now = Some(Box::new(now));
    }

    /// Creates the picker, without instances.
    pub fn build(self) -> Picker<T> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let balancer = Mutex::new(Balancer::new(self.ejection, self.zone, seed));
        let now = self.now.unwrap_or_else(|| Box::new(|| Clock.now()));
        Picker { shared: Arc::new(PickerInner { now, balancer }) }
    }
}

impl<T: Candidate> Picker<T> {
    /// The options of a picker.
    pub fn builder() -> PickerBuilder<T> {
        let (zone, ejection, candidates) = (None, Ejection::default(), PhantomData);
        PickerBuilder { zone, ejection, seed: None, now: None, candidates }
    }

    /// Replaces the instances to pick from. Calls in flight, latency and failures of those that stay are kept; the
    /// state of those that have left is dropped, also if they come back.
    pub fn update(&self, instances: impl IntoIterator<Item = Arc<T>>) {
        let instances = instances.into_iter().collect();
        let now = (self.shared.now)();
        self.shared.balancer().update(instances, now);
    }

    /// Picks the instance for the next call, which begins now.
    ///
    /// # Errors
    ///
    /// If no instance has a weight. If all are ejected, one of them is picked.
    pub fn pick(&self, how: Pick<'_>) -> Result<Call<T>, PickError> {
        let now = (self.shared.now)();
        let (instance, ticket) = self.shared.balancer().pick(how, now)?;
        Ok(Call { shared: Arc::clone(&self.shared), instance, ticket, verdict: CallVerdict::Good })
    }

    /// Like [`Picker::pick`], without these instances, for another try after a failed call. A key goes to the
    /// instance that it would belong to without them. Takes O(n).
    ///
    /// # Errors
    ///
    /// As [`Picker::pick`], and [`PickError::AllTried`]. Ejected instances are picked before that.
    pub fn pick_except(&self, tried: &[Arc<T>], how: Pick<'_>) -> Result<Call<T>, PickError> {
        let now = (self.shared.now)();
        let (instance, ticket) = self.shared.balancer().pick_except(tried, how, now)?;
        Ok(Call { shared: Arc::clone(&self.shared), instance, ticket, verdict: CallVerdict::Good })
    }

    /// Picks an instance, makes the call, and counts its outcome: `Err` as a failure. Makes no
    /// request other than the call.
    ///
    /// # Errors
    ///
    /// The inner result is that of the call; the outer one is that of [`Picker::pick`].
    ///
    /// # Session loss
    ///
    /// None: a picker has no session.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped before its end counts neither as good nor as failed; the time until then counts as
    /// latency if the average is lower. To make slow calls fail, put the time limit inside the call.
    pub async fn run<F, V, E>(
        &self,
        how: Pick<'_>,
        call: impl FnOnce(Arc<T>) -> F,
    ) -> Result<Result<V, E>, PickError>
    where
        F: Future<Output = Result<V, E>>,
    {
        let mut picked = self.pick(how)?;
        picked.verdict = CallVerdict::GivenUp;
        let result = call(Arc::clone(&picked.instance)).await;
        Ok(picked.outcome(result))
    }

    /// The recorded load of each instance, in the order of their ids. For display: it allocates.
    pub fn loads(&self) -> Vec<InstanceLoad<T>> {
        self.shared.balancer().show()
    }
}

impl<T: Candidate> Clone for Picker<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> PickerInner<T> {
    fn balancer(&self) -> MutexGuard<'_, Balancer<T>> {
        self.balancer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call to an instance, from its pick to its end.
///
/// A `Call` that is dropped counts as good, with the time since the pick as its latency. So report failures: with
/// [`Call::failed`], or by passing the result through [`Call::outcome`] before the `?` that returns early. If the
/// future that makes the call may be dropped, for example by a time limit around it, use [`Picker::run`].
#[must_use = "a call that is dropped counts as good"]
pub struct Call<T: Candidate> {
    shared: Arc<PickerInner<T>>,
    instance: Arc<T>,
    ticket: Ticket,
    verdict: CallVerdict,
}

impl<T: Candidate> Call<T> {
    /// The instance to call.
    pub fn instance(&self) -> &Arc<T> {
        &self.instance
    }

    /// Counts the call as failed: the instance did not provide its service. An answer that rejects the request is
    /// not a failure of the instance.
    pub fn failed(mut self) {
        self.verdict = CallVerdict::Failed;
    }

    /// Counts the call by its result, and returns it: `Ok` as good, `Err` as failed.
    ///
    /// # Errors
    ///
    /// The error of the call.
    pub fn outcome<V, E>(mut self, result: Result<V, E>) -> Result<V, E> {
        self.verdict = match result {
            Ok(_) => CallVerdict::Good,
            Err(_) => CallVerdict::Failed,
        };
        result
    }
}

impl<T: Candidate> Drop for Call<T> {
    fn drop(&mut self) {
        let now = (self.shared.now)();
        self.shared.balancer().end(self.ticket, self.verdict, now);
    }
}

lockkeeper_client::impl_debug!(Call<T: Candidate>, self => instance: self.instance.id());

lockkeeper_client::impl_debug!(Picker<T: Candidate>, self =>);

lockkeeper_client::impl_debug!(PickerBuilder<T>, self => zone: self.zone, ejection: self.ejection);

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::discovery::pick::InstanceHealth;

    #[derive(Debug)]
    struct Server(u32);

    impl Candidate for Server {
        fn id(&self) -> &str {
            ["a", "b", "c", "d"][self.0 as usize]
        }

        fn weight(&self) -> u32 {
            1
        }
    }

    /// For two servers, with a clock in seconds; the first failure ejects.
    fn picker(seconds: &Arc<AtomicU64>) -> Picker<Server> {
        let clock = Arc::clone(seconds);
        let now = move || Instant::from_start(Duration::from_secs(clock.load(Ordering::Relaxed)));
        let ejection = Ejection::default().failures(1).at_most_percent(50);
        let picker = Picker::builder().ejection(ejection).clock(now).build();
        picker.update([Arc::new(Server(0)), Arc::new(Server(1))]);
        picker
    }

    fn known(picker: &Picker<Server>) -> [(u32, bool); 2] {
        let known = picker.loads().into_iter();
        let known = known.map(|known| (known.in_flight, known.health == InstanceHealth::Healthy));
        known.collect::<Vec<_>>().try_into().expect("two servers")
    }

    /// The output of a future that does not wait.
    fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_call_is_in_flight_until_it_is_dropped() {
        let picker = picker(&Arc::default());
        let first = picker.pick(Pick::RoundRobin).unwrap();
        let second = picker.clone().pick(Pick::RoundRobin).unwrap();
        assert_eq!(known(&picker), [(1, true), (1, true)]);
        drop(first);
        second.failed();
        assert_eq!(known(&picker).map(|(in_flight, _)| in_flight), [0, 0]);
        assert_eq!(known(&picker).iter().filter(|(_, is_healthy)| *is_healthy).count(), 1);
    }

    #[test]
    fn results_pass_through_and_count() {
        let picker = picker(&Arc::default());
        let call = picker.pick(Pick::RoundRobin).unwrap();
        assert_eq!(call.outcome(Ok::<_, Infallible>(7)), Ok(7));
        assert_eq!(known(&picker), [(0, true), (0, true)]);
        let call = picker.pick(Pick::RoundRobin).unwrap();
        assert_eq!(call.outcome(Err::<(), _>("broken")), Err("broken"));
        assert!(known(&picker).contains(&(0, false)));
    }

    #[test]
    fn runs_count_as_their_results() {
        let picker = picker(&Arc::default());
        let good = picker.run(Pick::RoundRobin, async |_| Ok::<_, ()>(7));
        assert_eq!(now_or_never(good), Some(Ok(Ok(7))));
        assert_eq!(known(&picker), [(0, true), (0, true)]);
        let failed = picker.run(Pick::RoundRobin, async |_| Err::<(), _>("broken"));
        assert_eq!(now_or_never(failed), Some(Ok(Err("broken"))));
        assert!(known(&picker).contains(&(0, false)));

        picker.update([]);
        let nobody = picker.run(Pick::RoundRobin, async |_| Ok::<_, ()>(7));
        assert_eq!(now_or_never(nobody), Some(Err(PickError::NoInstance)));
    }

    /// A dropped future, or a time limit around the call, is no statement about the instance: it has not failed,
    /// and an instance on trial has not been tried.
    #[test]
    fn a_run_that_is_dropped_counts_as_neither() {
        let seconds = Arc::new(AtomicU64::new(0));
        let picker = picker(&seconds);
        let never = || picker.run(Pick::RoundRobin, |_| pending::<Result<(), ()>>());
        assert_eq!(now_or_never(never()), None);
        assert_eq!(known(&picker), [(0, true), (0, true)]);

        picker.pick(Pick::RoundRobin).unwrap().failed();
        seconds.store(1, Ordering::Relaxed);
        for _ in 0..4 {
            assert_eq!(now_or_never(never()), None);
        }
        let health: Vec<_> = picker.loads().into_iter().map(|known| known.health).collect();
        assert!(health.contains(&InstanceHealth::OnTrial), "{health:?}");
    }

    #[test]
    fn threads_may_pick_while_instances_change() {
        let picker = Picker::builder().build();
        picker.update([Arc::new(Server(0))]);
        let changing = picker.clone();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let picker = picker.clone();
                thread::spawn(move || {
                    for number in 0..2_000 {
                        let how = if thread % 2 == 0 { Pick::PowerOfTwo } else { Pick::RoundRobin };
                        let call = picker.pick(how).expect("one stays");
                        if number % 3 == 0 {
                            call.failed();
                        }
                    }
                })
            })
            .collect();
        for round in 0..500 {
            changing.update((0..1 + round % 4).map(|number| Arc::new(Server(number))));
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(picker.loads().iter().all(|known| known.in_flight == 0));
    }
}
