//! The traces of a question, and how to read them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::{Request, Volume};
use forebay_trace::{Batch, Metadata, OpenOptions, TraceReader, is_read_once, open_all};

use crate::read_ahead::read_ahead;
use crate::{AnalysisError, Note, Observer, Unit};

/// The traces of a question: files, merged by time, and how to open them.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// Files of any supported format; `-` is standard input. See [`Traces::can_be_read_only_once`].
    pub files: Vec<PathBuf>,
    /// How to open them.
    pub options: OpenOptions,
}

/// Facts about traces that are known once they have been read.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// Metadata, including the volumes by number.
    pub metadata: Metadata,
    /// Requests read.
    pub requests: u64,
}

impl Described {
    /// The name of a volume.
    pub fn volume_name(&self, volume: Volume) -> String {
        let info = self.metadata.volumes.get(volume.0 as usize);
        info.map_or_else(|| volume.0.to_string(), |v| v.name.clone())
    }
}

impl From<&Path> for Traces {
    fn from(file: &Path) -> Self {
        Self { files: vec![file.to_path_buf()], options: OpenOptions::default() }
    }
}

impl Traces {
    /// Whether a trace comes from standard input or a pipe.
    pub fn can_be_read_only_once(&self) -> bool {
        self.files.iter().any(|path| is_read_once(path))
    }

    /// The names of the files, for display.
    pub fn names(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        files.join(", ")
    }

    /// Opens the traces, and notes what is doubtful about them.
    ///
    /// # Errors
    /// If a file cannot be opened or is not a trace.
    pub fn open(&self, observer: &dyn Observer) -> Result<Box<dyn TraceReader>, AnalysisError> {
        let stop = Some(Arc::clone(observer.stop_flag()));
        let reader = open_all(&self.files, &OpenOptions { stop, ..self.options.clone() });
        observer.check()?;
        let reader = reader?;
        let Metadata { doubts, without_operations, .. } = reader.metadata();
        if !without_operations.is_empty() {
            observer.note(Note::WithoutOperations(without_operations.clone()));
        }
        doubts.iter().for_each(|doubt| observer.note(Note::Doubt(doubt.clone())));
        Ok(reader)
    }

    /// Reads the traces from beginning to end and passes every request to `work`. A separate thread
    /// reads ahead. Notes what was skipped.
    ///
    /// # Errors
    /// If a trace cannot be read, `work` fails, or the observer stops the work.
    pub fn read<E: From<AnalysisError>>(
        &self,
        observer: &dyn Observer,
        mut work: impl FnMut(&Request) -> Result<(), E>,
    ) -> Result<Described, E> {
        self.read_batches(observer, |batch, _| batch.requests().try_for_each(|r| work(&r)))
    }

    /// Reads the traces as [`Traces::read`] does, but passes whole batches to `work`, with the
    /// current metadata.
    ///
    /// # Errors
    /// As [`Traces::read`].
    pub fn read_batches<E: From<AnalysisError>>(
        &self,
        observer: &dyn Observer,
        work: impl FnMut(&Batch, &Metadata) -> Result<(), E>,
    ) -> Result<Described, E> {
        let reader = self.open(observer)?;
        let meter = observer.begin("reading", Unit::Bytes, reader.progress().bytes_total);
        let (reader, requests) = read_ahead(reader, &*meter, observer, work)?;
        drop(meter);
        Note::from_reader(&*reader).into_iter().for_each(|note| observer.note(note));
        Ok(Described { metadata: reader.metadata().clone(), requests })
    }
}
