//! Why a simulation cannot be had.

use forebay_config::Size;
use forebay_flash::LogError;
use forebay_setup::SetupError;

/// A simulation that cannot begin, or not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// No machine can be built from the configuration.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The flash tier's size is not known, because nothing is opened here.
    #[error("a simulated flash tier needs a size: set `size` in [flash]")]
    FlashSize,
    /// No device has this name.
    #[error(
        "there is no device `{0}`: use a [shape.NAME] from the configuration, or one of {names}",
        names = forebay_model::Profile::NAMES.join(", ")
    )]
    UnknownDevice(String),
    /// More volumes than a cache can have.
    #[error(
        "the trace has {found} volumes, but a cache can have at most {most}: choose some of them"
    )]
    TooManyVolumes {
        /// As many as there are.
        found: usize,
        /// As many as there may be.
        most: usize,
    },
    /// The options make no sense.
    #[error("{0}")]
    Options(&'static str),
    /// An outage is of a volume that there is not.
    #[error("there is no volume `{name}`: the trace has {known}")]
    UnknownOutage {
        /// The volume's name.
        name: String,
        /// The names of those that there are.
        known: String,
    },
    /// A request addresses a volume that there is not.
    #[error("request {request} is for volume {volume}, but there are only {volumes} volumes")]
    UnknownVolume {
        /// Which request, from 1.
        request: u64,
        /// The volume's number.
        volume: u32,
        /// How many volumes there are.
        volumes: usize,
    },
    /// A request reaches beyond the end of its volume.
    #[error(
        "request {request} ends at {} of volume {volume}, which has {}: set a larger `size`, or \
         omit it to use the size found in the trace",
        Size(*end), Size(*size)
    )]
    BeyondVolume {
        /// Which request, from 1.
        request: u64,
        /// The volume's name.
        volume: String,
        /// Where the request ends, in bytes.
        end: u64,
        /// What the volume has, in bytes.
        size: u64,
    },
    /// A request reaches beyond the end of the largest volume that a cache can have.
    #[error(
        "request {request} ends at offset {end} of volume {volume}, but with this `block_size`, \
         volumes must be smaller than {}: set a larger `block_size` in [cache]",
        Size(*limit)
    )]
    BeyondVolumes {
        /// Which request, from 1.
        request: u64,
        /// The volume's name.
        volume: String,
        /// Where the request ends, in bytes.
        end: u64,
        /// With this size of blocks, no volume is as large, in bytes.
        limit: u64,
    },
    /// The flash tier could not be set up.
    #[error("the flash tier could not be set up: {0}")]
    Flash(LogError),
    /// Somebody wished it to end; see [`Simulation::stop_when`](crate::Simulation::stop_when).
    #[error("stopped before the run had finished")]
    Interrupted,
    /// Nothing is under way on any device, and still requests are not answered.
    #[error("the cache stopped answering after {requests} requests; its state: {state}")]
    Stuck {
        /// Requests answered until then.
        requests: u64,
        /// The state of the cache, for a report of the fault.
        state: String,
    },
}
