//! A whole server: the engine, its NBD address and its control address.

use std::net::ToSocketAddrs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_config::{Address, Config, OnStop};
use forebay_engine::{Engine, EngineError, EngineOptions, Recovering, StopMode};
use forebay_nbd::{NbdAddress, NbdUri};
use serde::Serialize;

use crate::control::{ControlServer, Ended, StopRequest, Views};
use crate::error::ServeError;
use crate::listener::Listener;
use crate::nbd::{NbdReported, NbdServer, Stopped, allow_connections};
use crate::ownership::Ownership;
use crate::record::{RecordOptions, Recording, RecordingFile};

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) nbd: NbdServer,
    control: ControlServer,
    pub(crate) stop: Arc<StopRequest>,
    recording: Option<Arc<Recording>>,
    pub(crate) explain: Explain,
    /// The configuration in force, except for settings that the engine changes on its own: only the
    /// engine knows their current values.
    pub(crate) running: Mutex<Config>,
}

/// Turns an engine's error into a message for operators: what happened, and what to do, in the
/// terms of the program that runs the server.
pub type Explain = fn(&EngineError) -> String;

/// What a server says once clients are welcome.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// Where NBD clients connect.
    pub nbd: String,
    /// Where operators connect.
    pub control: String,
    /// The exports' names; the first is the default one.
    pub exports: Vec<String>,
    /// The server's process.
    pub pid: u32,
}

/// What [`Server::faults`] has reported.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    nbd: NbdReported,
    recording: bool,
}

/// What a stop does with dirty data by default.
pub fn usual_stop(config: &Config) -> StopMode {
    match config.flush.on_stop {
        OnStop::Keep => StopMode::Keep,
        OnStop::Destage => StopMode::Destage,
    }
}

impl Server {
    /// Listens, opens the cache and serves. While the cache recovers, calls `progress` ten times a
    /// second, and gives up if it returns [`ControlFlow::Break`]. Operators are answered from the
    /// first moment, clients when the cache is ready. Operators receive later engine errors as
    /// worded by `explain`.
    ///
    /// # Errors
    /// If an address is in use, the recording cannot be created, or the engine cannot be opened.
    /// They are tried in this order, so that a second server on the same address touches no device.
    pub fn start(
        config: &Config,
        options: EngineOptions,
        record: Option<&RecordOptions>,
        explain: Explain,
        progress: &mut dyn FnMut(&Recovering) -> ControlFlow<()>,
    ) -> Result<Server, ServeError> {
        let serve = &config.serve;
        let of_nbd = Ownership::find(
            serve.socket_mode,
            serve.socket_owner.as_deref(),
            serve.socket_group.as_deref(),
        )?;
        let of_control = Ownership::find(
            serve.control_mode,
            serve.control_owner.as_deref(),
            serve.control_group.as_deref(),
        )?;
        let connections_max = allow_connections(serve.connections, config.volume.len())?;
        refuse_own_exports(config)?;
        let nbd = Listener::bind(&serve.nbd, &of_nbd)?;
        let control = Listener::bind(&serve.control, &of_control)?;
        let stop = Arc::new(StopRequest::new(usual_stop(config)));
        let token_file = &config.serve.control_token_file;
        let control = ControlServer::start(control, token_file, stop.clone())?;
        // Created before the engine creates files, so that a refused start leaves none behind.
        let recording = match record {
            Some(record) => Some(
                RecordingFile::create(record)
                    .map_err(|e| ServeError::recording(&record.path, e))?,
            ),
            None => None,
        };
        let engine = Engine::open_watched(config, options, &mut |recovering| {
            control.starting(*recovering);
            match stop.ends_start() {
                true => ControlFlow::Break(()),
                false => progress(recovering),
            }
        });
        let engine = Arc::new(engine?);
        let recording = match recording {
            Some(file) => {
                let of_recording = Arc::downgrade(&engine);
                let oldest = move || of_recording.upgrade()?.oldest_in_flight();
                let (clock, volumes) = (engine.clock(), engine.volumes());
                let started = file.start(clock, volumes, oldest);
                Some(Arc::new(started.map_err(|e| ServeError::System("start a thread", e))?))
            }
            None => None,
        };
        let nbd = NbdServer::start(engine.clone(), nbd, recording.clone(), serve, connections_max)?;
        let recorded = recording.as_deref().map(Recording::view);
        control.serve(&engine, Views { nbd: nbd.view(), recording: recorded, explain });
        let running = Mutex::new(config.clone());
        Ok(Server { engine, nbd, control, stop, recording, explain, running })
    }

    /// The addresses, exports and process of the running server.
    pub fn ready(&self) -> Ready {
        Ready {
            nbd: self.nbd.address().to_owned(),
            control: self.control.address().to_owned(),
            exports: self.engine.volumes().iter().map(|v| v.name.clone()).collect(),
            pid: std::process::id(),
        }
    }

    /// Messages for an operator about the start, in addition to the engine's
    /// [`notices`](Engine::notices).
    pub fn notices(&self) -> Vec<String> {
        let wanted = self.running.lock().unwrap_or_else(PoisonError::into_inner).serve.connections;
        let most = self.nbd.connections_max();
        let few = (most < wanted).then(|| {
            format!(
                "the limit on open files (ulimit -n) allows only {most} NBD connections, fewer \
                 than serve.connections = {wanted}"
            )
        });
        few.into_iter().collect()
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Faults that an operator should learn of without asking, in addition to the engine's
    /// [`faults`](Engine::faults). Returns those that `reported` does not contain yet, and adds
    /// them.
    pub fn faults(&self, reported: &mut Reported) -> Vec<String> {
        let mut faults = self.nbd.faults(&mut reported.nbd);
        let failure = self.recording.as_ref().and_then(|recording| recording.failure());
        if let (Some(failure), false) = (failure, reported.recording) {
            faults.push(failure);
            reported.recording = true;
        }
        faults
    }

    /// Begins the stop that was requested over the control address, or the default one. From now
    /// on, requests for a stop that does more are refused.
    pub fn begin_stop(&self) -> StopMode {
        self.stop.begin()
    }

    /// The stop that was requested over the control address, if any.
    pub fn stop_requested(&self) -> Option<StopMode> {
        self.stop.get()
    }

    /// Disconnects clients, then stops the engine as [`Engine::stop_unless`] does. Returns a
    /// report, even if the stop fails, and the number of dirty blocks left on flash.
    ///
    /// # Errors
    /// If dirty data could not be moved to where `mode` requires; it is kept. A failed recording is
    /// not an error: [`Stopped`] reports it.
    pub fn stop(
        self,
        mode: StopMode,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> (Stopped, Result<u64, ServeError>) {
        // Requests that cannot be completed are answered, so that their clients can disconnect.
        self.engine.prepare_stop();
        let news = self.engine.take_news();
        let mut stopped = self.nbd.stop();
        self.control.stopping();
        let mut engine = self.engine;
        // A control request in progress holds a reference to the engine for a moment longer.
        let engine = loop {
            match Arc::try_unwrap(engine) {
                Ok(engine) => break engine,
                Err(shared) => engine = shared,
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let ended = engine.stop_unless(mode, progress);
        // The file of a recording may accept no data, so the data of clients comes first. The
        // recording no longer needs the engine: all connections have ended and noted their answers.
        if let Some(recording) = self.recording {
            stopped.recorded = recording.finish();
            stopped.recording_failure = recording.failure();
        }
        let told = ended.as_ref().map(|&dirty_blocks| Ended::Stopped { mode, dirty_blocks });
        let told = told.map_err(self.explain);
        self.control.stopped(told);
        // Dropping it also answers the operators who are waiting for the stop.
        drop(self.control);
        (Stopped { news, ..stopped }, ended.map_err(ServeError::from))
    }
}

/// Refuses a backing store that this server exports: the server would wait for its own start.
fn refuse_own_exports(config: &Config) -> Result<(), ServeError> {
    let is_own = |backing: &str| {
        backing.parse::<NbdUri>().is_ok_and(|uri| is_same(&uri.address, &config.serve.nbd))
    };
    match config.volume.iter().find(|volume| is_own(&volume.backing)) {
        Some(own) => {
            Err(ServeError::OwnExport { volume: own.name.clone(), address: own.backing.clone() })
        }
        None => Ok(()),
    }
}

/// Whether a client that connects to `remote` reaches the socket at `local`.
fn is_same(remote: &NbdAddress, local: &Address) -> bool {
    match (remote, local) {
        (NbdAddress::Unix(remote), Address::Unix(local)) => {
            let absolute = |path: &Path| {
                // The socket itself may not exist yet.
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
                Some(directory.join(path.file_name()?))
            };
            let remote = Path::new(remote);
            remote == local || absolute(remote).is_some_and(|path| Some(path) == absolute(local))
        }
        (NbdAddress::Tcp { host, port }, Address::Tcp(local)) if *port == local.port() => {
            let addresses = (host.as_str(), *port).to_socket_addrs();
            addresses.is_ok_and(|mut addresses| addresses.any(|address| address == *local))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backing_store_that_the_server_itself_exports_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let in_it = |name: &str| directory.path().join(name).display().to_string();
        let config = |backing: &str, nbd: &str| {
            let text = format!(
                "[cache]\ndram = '4MiB'\n[serve]\nnbd = '{nbd}'\n[[volume]]\nname = 'vm1'\n\
                 backing = '{backing}'\n"
            );
            Config::from_toml(&text).unwrap()
        };
        let own = format!("unix:{}", in_it("nbd.sock"));
        let twisted = format!("{}/./nbd.sock", directory.path().display());
        for (backing, nbd, refused) in [
            (format!("nbd+unix:///vm1?socket={}", in_it("nbd.sock")), own.as_str(), true),
            (format!("nbd+unix:///vm1?socket={twisted}"), own.as_str(), true),
            (format!("nbd+unix:///vm1?socket={}", in_it("other.sock")), own.as_str(), false),
            ("nbd://127.0.0.1:10900/vm1".to_owned(), "tcp:127.0.0.1:10900", true),
            ("nbd://localhost:10900/vm1".to_owned(), "tcp:127.0.0.1:10900", true),
            ("nbd://127.0.0.1:10901/vm1".to_owned(), "tcp:127.0.0.1:10900", false),
            (in_it("disk.img"), own.as_str(), false),
        ] {
            let result = refuse_own_exports(&config(&backing, nbd));
            assert_eq!(result.is_err(), refused, "{backing} at {nbd}");
        }
    }
}
