//! Errors of simulations.

use forebay_config::Size;
use forebay_flash::LogError;
use forebay_setup::SetupError;

/// Why a simulation cannot begin or cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// No cache can be set up from the configuration.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The flash tier's size is unknown, because a simulation does not open the device.
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
        "the trace has {found} volumes, but a cache can have at most {most}: select some of them"
    )]
    TooManyVolumes {
        /// Number of volumes in the trace.
        found: usize,
        /// Maximum number of volumes.
        most: usize,
    },
    /// The options make no sense.
    #[error("{0}")]
    Options(&'static str),
    /// An outage names a volume that does not exist.
    #[error("there is no volume `{name}`: the trace has {known}")]
    UnknownOutage {
        /// The volume's name.
        name: String,
        /// The names of the volumes that exist.
        known: String,
    },
    /// A request addresses a volume that does not exist.
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
        "request {request} ends at offset {} of volume {volume}, whose size is {}: set a larger \
         `size`, or omit it to use the size found in the trace",
        Size(*end), Size(*size)
    )]
    BeyondVolume {
        /// Which request, from 1.
        request: u64,
        /// The volume's name.
        volume: String,
        /// Where the request ends, in bytes.
        end: u64,
        /// Size of the volume in bytes.
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
        /// Exclusive upper bound for the size of a volume with this block size, in bytes.
        limit: u64,
    },
    /// The flash tier could not be set up.
    #[error("the flash tier could not be set up: {0}")]
    Flash(LogError),
    /// The caller stopped the run; see [`Simulation::stop_when`](crate::Simulation::stop_when).
    #[error("the run was stopped before it finished")]
    Interrupted,
    /// No operation is in flight on any device, but some requests are still not answered.
    #[error("the cache stopped answering after {requests} requests; its state: {state}")]
    Stuck {
        /// Number of requests answered so far.
        requests: u64,
        /// The state of the cache, for a bug report.
        state: String,
    },
}
