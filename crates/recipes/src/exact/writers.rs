//! A writer for each write of a handle that is in progress.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use lockkeeper_client::{Client, ZnodePath};

use crate::exact::writer::ExactWriter;

/// The maximum number of writers, each with a marker on the server, that are kept for later writes.
const MAX_IDLE: usize = 8;

/// The writers of a handle. Each write takes its own writer, so that no write waits for another one, whose
/// future may not be polled any more.
#[derive(Debug)]
pub(crate) struct Writers {
    client: Client,
    /// The directory of the markers.
    directory: ZnodePath,
    idle: Mutex<Vec<ExactWriter>>,
}

impl Writers {
    pub(crate) fn new(client: &Client, directory: ZnodePath) -> Self {
        Self { client: client.clone(), directory, idle: Mutex::default() }
    }

    /// A writer for exclusive use, until it is dropped.
    pub(crate) fn take(&self) -> WriterInUse<'_> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let writer = idle.unwrap_or_else(|| ExactWriter::new(&self.client, &self.directory));
        WriterInUse { writers: self, writer: Some(writer) }
    }
}

/// A writer in use.
#[derive(Debug)]
pub(crate) struct WriterInUse<'a> {
    writers: &'a Writers,
    /// `Some` until it is dropped.
    writer: Option<ExactWriter>,
}

impl Deref for WriterInUse<'_> {
    type Target = ExactWriter;

    fn deref(&self) -> &ExactWriter {
        self.writer.as_ref().expect("it is there until the end")
    }
}

impl DerefMut for WriterInUse<'_> {
    fn deref_mut(&mut self) -> &mut ExactWriter {
        self.writer.as_mut().expect("it is there until the end")
    }
}

impl Drop for WriterInUse<'_> {
    fn drop(&mut self) {
        let mut idle = self.writers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.extend(self.writer.take());
        }
    }
}
