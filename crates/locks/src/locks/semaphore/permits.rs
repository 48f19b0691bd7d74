//! The number of permits of a semaphore: stored in a node, or a convention of the programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::{Client, Error, ErrorCode, Stat, ZnodePath, present};

use crate::attempt::{Attempt, retried, retry_acquire};
use crate::contender::node::Contender;
use crate::error::{AcquireError, SetPermitsError};
use crate::permit_format::PermitFormat;

/// Where the number is stored.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    /// The semaphore's path.
    pub(crate) path: ZnodePath,
    /// The number of this handle, written if none is stored.
    pub(crate) initial: u32,
    /// The node that stores the number; `None` if each program sets its own.
    pub(crate) node: Option<ZnodePath>,
    pub(crate) format: PermitFormat,
    /// Whether another stored number is accepted.
    accepts_other: bool,
    seen: Arc<KnownNumber>,
}

/// What a handle and its clones know about the stored number.
#[derive(Debug, Default)]
struct KnownNumber {
    /// The stored number was equal to the handle's own once, or was accepted. Another number is a later change.
    agreed: AtomicBool,
    /// The log already warns that the stored number differs from the handle's own, or the handle itself has changed it.
    warned: AtomicBool,
}

impl Permits {
    pub(crate) fn new(
        path: ZnodePath,
        initial: u32,
        node: Option<ZnodePath>,
        format: PermitFormat,
    ) -> Self {
        // With this format the number is Curator's. The handle's own number applies only if none is stored.
        let accepts_other = format == PermitFormat::SharedCount;
        Self { path, initial, node, format, accepts_other, seen: Arc::default() }
    }

    /// Accepts another stored number.
    pub(crate) fn accept_other(&mut self) {
        self.accepts_other = true;
    }

    /// The current number, if this handle may use it. `asked`: the pending read of the node, if it was
    /// sent. With it, the call makes no further request unless no number is stored yet.
    pub(crate) async fn agreed(
        &self,
        client: &Client,
        asked: Option<Result<(Bytes, Stat), Error>>,
    ) -> Result<u32, AcquireError> {
        let number = self.current(client, asked).await?;
        self.compare(number)?;
        Ok(number)
    }

    /// The current number.
    pub(crate) async fn current(
        &self,
        client: &Client,
        asked: Option<Result<(Bytes, Stat), Error>>,
    ) -> Result<u32, AcquireError> {
        let Some(node) = &self.node else { return Ok(self.initial) };
        if let Some(Ok((data, _))) = &asked
            && !data.is_empty()
        {
            return self.parse(node, data);
        }
        retried(&self.path, async || self.agree(client, node).await).await
    }

    /// Fails if the number differs from the one that the handle was created with, unless it has changed since
    /// the handle agreed. Warns once in the life of a handle if such a number is used.
    fn compare(&self, number: u32) -> Result<(), AcquireError> {
        if number == self.initial || self.accepts_other {
            self.seen.agreed.store(true, Ordering::Relaxed);
        }
        if !self.seen.agreed.load(Ordering::Relaxed) {
            let (path, permits) = (self.path.clone(), self.initial);
            return Err(AcquireError::OtherPermits { path, permits, stored: number });
        }
        if number != self.initial && !self.seen.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{} has {number} permits and not {}: the stored number counts until a program \
                 changes it",
                self.path,
                self.initial
            );
        }
        Ok(())
    }

    /// Reads the number, or writes the initial one if none is stored. The first writer decides.
    async fn agree(&self, client: &Client, node: &ZnodePath) -> Result<u32, Attempt> {
        let failed = |error| Attempt::at_entry(&self.path, error);
        match client.data(node).await {
            Ok((data, stat)) if data.is_empty() => {
                self.write_initial(client, node, stat.version).await
            }
            Ok((data, _)) => self.parse(node, &data).map_err(Attempt::Failed),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                client.ensure(node, self.format.mode()).await.map_err(failed)?;
                Err(Attempt::Prepared)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the initial number into a node without data, which has this version.
    async fn write_initial(
        &self,
        client: &Client,
        node: &ZnodePath,
        version: i32,
    ) -> Result<u32, Attempt> {
        let number = self.format.write(self.initial);
        let written = client.set_data(node, number, Some(version)).await;

        match written.as_ref().err().and_then(Error::code) {
            // Another program was faster, or has deleted the node.
            Some(ErrorCode::BadVersion | ErrorCode::NoNode) => Err(Attempt::Again),
            _ => {
                written.map(|_| self.initial).map_err(|error| Attempt::at_entry(&self.path, error))
            }
        }
    }

    fn parse(&self, node: &ZnodePath, data: &[u8]) -> Result<u32, AcquireError> {
        self.format.read(data).ok_or_else(|| AcquireError::BadPermits {
            node: node.clone(),
            found: String::from_utf8_lossy(data).into_owned(),
        })
    }

    /// Fails if the semaphore has fewer permits than wanted.
    pub(crate) fn enough(&self, wanted: u32, permits: u32) -> Result<(), AcquireError> {
        match wanted <= permits {
            true => Ok(()),
            false => Err(AcquireError::TooMany { path: self.path.clone(), wanted, permits }),
        }
    }

    /// Waits until the number differs from `known`. Never returns if the number is not stored.
    pub(crate) async fn changed(
        &self,
        contender: &Contender,
        known: u32,
    ) -> Result<u32, AcquireError> {
        let Some(node) = &self.node else { return std::future::pending().await };
        loop {
            let asked = contender.client().data_watched(node);
            let Some(((data, _), mut watcher)) = contender.watch(node, asked).await? else {
                // The number was deleted. The last known one applies until another one is stored.
                match contender.client().exists_watched(node).await {
                    Ok((Some(_), _)) => {}
                    Ok((None, mut watcher)) => {
                        watcher.changed().await.map_err(|_| contender.session_ended())?;
                    }
                    Err(error) => retry_acquire(contender.path(), error).await?,
                }
                continue;
            };

            let number = self.parse(node, &data)?;
            if number != known {
                return Ok(number);
            }
            watcher.changed().await.map_err(|_| contender.session_ended())?;
        }
    }

    /// Changes the number.
    pub(crate) async fn set(&self, client: &Client, number: u32) -> Result<(), SetPermitsError> {
        let Some(node) = self.node.as_ref().filter(|_| self.format != PermitFormat::LastingText)
        else {
            return Err(SetPermitsError::Fixed { path: self.path.clone() });
        };
        if number == 0 {
            return Err(SetPermitsError::Zero { path: self.path.clone() });
        }
        let most = self.format.most();
        if number > most {
            return Err(SetPermitsError::TooMany { path: self.path.clone(), most });
        }

        self.seen.agreed.store(true, Ordering::Relaxed);
        self.seen.warned.store(true, Ordering::Relaxed);
        let number = self.format.write(number);

        // The server may delete a container at any time while it is empty.
        while present(client.set_data(node, number.clone(), None).await)?.is_none() {
            client.ensure(node, self.format.mode()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Keeps the lines written to the log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    impl Visit for Log {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }

    /// Symptom: a handle used a number other than its own without an error or a warning.
    #[test]
    fn another_number_is_refused_and_a_change_is_told_once() {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            let path = ZnodePath::new("/locks/printers").unwrap();
            let node = Some(path.clone());
            let permits = Permits::new(path, 3, node, PermitFormat::Text);
            assert!(matches!(
                permits.compare(2),
                Err(AcquireError::OtherPermits { permits: 3, stored: 2, .. })
            ));
            permits.compare(3).unwrap();
            assert!(log.0.lock().unwrap().is_empty());
            permits.compare(2).unwrap();
            permits.clone().compare(2).unwrap();
        });
        let lines = log.0.lock().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("/locks/printers has 2 permits and not 3"), "{lines:?}");
    }
}
