//! A writer for each write that a handle has under way.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use lockkeeper_client::{Client, ZnodePath};

use crate::exact::writer::ExactWriter;

/// How many writers, each with a marker on the server, are kept for later writes.
const KEPT: usize = 8;

/// The writers of a handle. A write takes one of its own, so that none waits for another, which may
/// be one that nobody polls any more.
#[derive(Debug)]
pub(crate) struct Writers {
    client: Client,
    /// Where the markers are.
    directory: ZnodePath,
    idle: Mutex<Vec<ExactWriter>>,
}

impl Writers {
    pub(crate) fn new(client: &Client, directory: ZnodePath) -> Self {
        Self { client: client.clone(), directory, idle: Mutex::default() }
    }

    /// A writer that no other write uses, until it is dropped.
    pub(crate) fn take(&self) -> Taken<'_> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let writer = idle.unwrap_or_else(|| ExactWriter::new(&self.client, &self.directory));
        Taken { writers: self, writer: Some(writer) }
    }
}

/// A writer that is in use.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    writers: &'a Writers,
    /// There until it is dropped.
    writer: Option<ExactWriter>,
}

impl Deref for Taken<'_> {
    type Target = ExactWriter;

    fn deref(&self) -> &ExactWriter {
        self.writer.as_ref().expect("it is there until the end")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut ExactWriter {
        self.writer.as_mut().expect("it is there until the end")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut idle = self.writers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.extend(self.writer.take());
        }
    }
}
