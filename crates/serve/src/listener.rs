//! Sockets to listen on, unix or TCP.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_config::Address;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::ServeError;
use crate::ownership::Ownership;

/// How long to wait for an address in use, and for the lock of a directory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The file comes first because it must be dropped first; see [`SocketFile`].
    Unix(SocketFile, UnixListener),
    Tcp(TcpListener),
}

/// The file of a unix socket. Dropping this removes the file, unless another process has replaced
/// it.
///
/// Drop this before the listener is closed: while the socket is open, no other server takes the
/// file for a stale one, and no other file has its inode.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file that the server created.
    made: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        let made = Self::identity(&path);
        Self { path, made }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.made.is_some() && Self::identity(&self.path) == self.made {
            // Someone may have removed it already; nothing depends on the removal.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens on `address`. Replaces the file of a unix socket that no process listens on.
    ///
    /// # Errors
    /// If another process serves the address, or the system refuses it.
    pub fn bind(address: &Address, ownership: &Ownership) -> Result<Listener, ServeError> {
        // A process that was just killed may still be exiting.
        let until = Instant::now() + PATIENCE;
        loop {
            match Self::bind_now(address, ownership) {
                Err(ServeError::InUse { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                result => return result,
            }
        }
    }

    fn bind_now(address: &Address, ownership: &Ownership) -> Result<Listener, ServeError> {
        let failed = |source| ServeError::Listen { address: address.to_string(), source };
        match address {
            Address::Tcp(address) => {
                let listener =
                    TcpListener::bind(address).map_err(|source| match source.kind() {
                        io::ErrorKind::AddrInUse => {
                            ServeError::InUse { address: format!("tcp:{address}") }
                        }
                        _ => failed(source),
                    })?;
                Ok(Listener::Tcp(listener))
            }
            Address::Unix(path) => {
                // Declared first, so that it is dropped after the file if this fails.
                let _lock = lock_directory(path);
                remove_stale(path)?;
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None);
                let socket = socket.map_err(failed)?;
                // The kernel creates the file with the permissions of the socket. So the file never
                // admits more users than configured, and nobody can connect before the socket
                // listens.
                let socket = File::from(OwnedFd::from(socket));
                socket.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
                let socket = Socket::from(OwnedFd::from(socket));
                let name = SockAddr::unix(path).map_err(failed)?;
                let bound = socket.bind(&name);
                bound.map_err(|e| ServeError::listen(address.to_string(), path, e))?;
                let file = SocketFile::new(path.clone());
                ownership.give(path)?;
                socket.listen(BACKLOG).map_err(failed)?;
                Ok(Listener::Unix(file, UnixListener::from(OwnedFd::from(socket))))
            }
        }
    }

    /// The address that it listens on. For TCP port 0, this names the port that the system chose.
    pub fn address(&self) -> String {
        match self {
            Listener::Unix(file, _) => format!("unix:{}", file.path.display()),
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("tcp:{address}"),
                Err(_) => "tcp:unknown".to_owned(),
            },
        }
    }

    /// Accepts the next connection.
    pub fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix(_, listener) => Ok(listener.accept()?.0.into()),
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                socket.set_nodelay(true)?;
                Ok(socket.into())
            }
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Unix(_, listener) => listener.as_raw_fd(),
            Listener::Tcp(listener) => listener.as_raw_fd(),
        }
    }
}

/// Sends as much as the socket accepts without blocking. Returns the number of bytes.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the socket accepts nothing.
pub(crate) fn send(socket: &Socket, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    socket.send_vectored_with_flags(slices, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Locks the directory of a socket until the result is dropped. A starting server checks whether a
/// process listens on the file, removes the file if not, creates its own and listens. Without the
/// lock, two servers that start together could each remove the other's file, because a file looks
/// stale until its server listens.
///
/// A lock on the directory leaves no file behind, and ends with the process. If the directory
/// cannot be locked or does not exist, the start continues without the lock, and the calls that
/// follow report any error. It also continues if another process holds the lock for longer than a
/// server needs: anyone who can read a directory can lock it, and must not be able to prevent a
/// start.
fn lock_directory(path: &Path) -> Option<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let directory = File::open(parent).ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
        }
    }
}

/// Removes the file of a socket that no process listens on. The caller has locked the directory.
fn remove_stale(path: &Path) -> Result<(), ServeError> {
    let address = || format!("unix:{}", path.display());
    let failed = |source| ServeError::listen(address(), path, source);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    // Its owner may remove it at any moment.
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let name = SockAddr::unix(path).map_err(failed)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).map_err(failed)?;
    match socket.connect(&name) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            match fs::remove_file(path) {
                Err(error) if !gone(&error) => Err(failed(error)),
                _ => Ok(()),
            }
        }
        Err(error) if gone(&error) => Ok(()),
        // The listener's backlog is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(ServeError::InUse { address: address() })
        }
        Err(error) => Err(failed(error)),
        Ok(()) => Err(ServeError::InUse { address: address() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    fn bind(address: &Address) -> Result<Listener, ServeError> {
        Listener::bind(address, &Ownership::default())
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind, as by a killed server");
        let live = bind(&address).unwrap();
        assert!(matches!(bind(&address), Err(ServeError::InUse { .. })));
        drop(live);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&address), Err(ServeError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_successors_socket_stays_when_its_predecessor_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let predecessor = bind(&address).unwrap();
        fs::remove_file(&path).unwrap();
        let successor = bind(&address).unwrap();
        drop(predecessor);
        assert!(UnixStream::connect(&path).is_ok(), "the successor cannot be reached");
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn an_address_is_had_when_its_owner_leaves_soon() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("socket"));
        let owner = bind(&address).unwrap();
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(owner);
        });
        bind(&address).unwrap();
        leaving.join().unwrap();
    }

    #[test]
    fn an_owner_that_leaves_while_its_socket_is_looked_at_does_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        for _ in 0..2_000 {
            let owner = bind(&address).unwrap();
            let leaving = std::thread::spawn(move || drop(owner));
            let successor = loop {
                match Listener::bind_now(&address, &Ownership::default()) {
                    Err(ServeError::InUse { .. }) => {}
                    result => break result.unwrap(),
                }
            };
            leaving.join().unwrap();
            assert!(UnixStream::connect(&path).is_ok(), "the successor cannot be reached");
            drop(successor);
        }
    }

    #[test]
    fn a_server_that_accepts_nobody_still_has_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        assert!(matches!(bind(&address), Err(ServeError::InUse { .. })));
        assert!(path.exists());
    }

    #[test]
    fn a_process_that_keeps_the_directory_locked_does_not_prevent_a_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let lock = File::open(directory.path()).unwrap();
        lock.lock().unwrap();
        let listening = bind(&Address::Unix(path.clone())).unwrap();
        // A socket in use is still recognised as in use.
        assert!(bind(&Address::Unix(path)).is_err());
        drop(listening);
    }

    #[test]
    fn of_two_servers_that_start_at_once_one_has_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let together = Barrier::new(2);
        let start = || {
            together.wait();
            Listener::bind_now(&address, &Ownership::default())
        };
        for round in 0..3_000 {
            if round % 2 == 0 {
                drop(UnixListener::bind(&path).unwrap());
            }
            let (one, other) = std::thread::scope(|scope| {
                let one = scope.spawn(start);
                (start(), one.join().unwrap())
            });
            assert!(one.is_ok() != other.is_ok(), "round {round}: {one:?}, {other:?}");
            assert!(UnixStream::connect(&path).is_ok(), "round {round}: it cannot be reached");
            drop((one, other));
            let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
            assert!(left.is_empty(), "round {round}: {left:?}");
        }
    }

    #[test]
    fn port_zero_becomes_a_port() {
        let listener = bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(!listener.address().ends_with(":0"), "{}", listener.address());
    }
}
