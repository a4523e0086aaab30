//! Bytes through TCP, with the first process in the middle.
//!
//! Each process has two connections to the first one: one for data, in step with what all of them do, and one for the
//! [watcher](super::watch). A connection begins with a greeting, so that a stranger at the port is told apart.

use super::launch::Launch;
use crate::error::{Error, Result};
use rrvq_tensor::Collective;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a process waits for the others to start.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a stranger may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
const MAGIC: &[u8; 8] = b"rrvq-2\0\0";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    Data,
    Control,
}

/// The data connections: to all others at the first process, to the first one elsewhere.
#[derive(Debug)]
pub(super) struct Hub {
    rank: usize,
    world: usize,
    peers: Mutex<Vec<TcpStream>>,
}

/// Finds the others: data connections, and those of the watcher with the rank at their other end.
pub(super) fn meet(launch: &Launch) -> Result<(Hub, Vec<(usize, TcpStream)>)> {
    let address = (launch.host.as_str(), launch.port);
    let (data, controls) = match launch.rank {
        0 => {
            let listener = listen(launch)?;
            let mut data = accept(&listener, launch.world, &[Purpose::Data, Purpose::Control])?;
            let controls = data.split_off(launch.world - 1);
            (data, controls)
        }
        rank => {
            let data = connect(address, Purpose::Data, rank, launch.world)?;
            let control = connect(address, Purpose::Control, rank, launch.world)?;
            (vec![(0, data)], vec![(0, control)])
        }
    };
    let hub = Hub {
        rank: launch.rank,
        world: launch.world,
        peers: Mutex::new(data.into_iter().map(|(_, stream)| stream).collect()),
    };
    Ok((hub, controls))
}

/// Listens where the others look: on this machine alone where they are all here.
fn listen(launch: &Launch) -> Result<TcpListener> {
    let here = ["127.0.0.1", "localhost", "::1"].contains(&launch.host.as_str());
    let host = if here { "127.0.0.1" } else { "0.0.0.0" };
    TcpListener::bind((host, launch.port)).map_err(|error| {
        Error::new(format!(
            "rank 0 cannot listen at port {} ({error}); name a free one in MASTER_PORT, the same for all ranks",
            launch.port
        ))
    })
}

/// All others' connections: those of the first purpose in order of rank, then those of the second.
pub(super) fn accept(
    listener: &TcpListener,
    world: usize,
    purposes: &[Purpose],
) -> Result<Vec<(usize, TcpStream)>> {
    let mut found: Vec<Option<TcpStream>> = Vec::new();
    found.resize_with((world - 1) * purposes.len(), || None);
    let end = Instant::now() + PATIENCE;
    listener.set_nonblocking(true).map_err(trouble)?;
    while let Some(missing) = found.iter().position(Option::is_none) {
        let (mut stream, _) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > end {
                    let rank = missing % (world - 1) + 1;
                    return Err(Error::new(format!(
                        "rank {rank} of {world} did not come within {} s; start all ranks, and let rank 0's machine be reached",
                        PATIENCE.as_secs()
                    )));
                }
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(error) => return Err(trouble(error)),
        };
        // A stranger is let go.
        let Ok((purpose, rank, theirs)) = greeted(&mut stream) else {
            continue;
        };
        if theirs != world || rank == 0 || rank >= world {
            return Err(Error::new(format!(
                "a process came as rank {rank} of {theirs} to a training of {world}; start all ranks with the same number of them"
            )));
        }
        let Some(kind) = purposes.iter().position(|p| *p == purpose) else {
            continue;
        };
        let place = &mut found[kind * (world - 1) + rank - 1];
        if place.is_some() {
            return Err(Error::new(format!(
                "two processes came as rank {rank}; give each its own, or another port in MASTER_PORT to each training"
            )));
        }
        if stream.write_all(MAGIC).is_ok() {
            *place = Some(stream);
        }
    }
    let ranks = (0..purposes.len()).flat_map(|_| 1..world);
    Ok(ranks.zip(found.into_iter().flatten()).collect())
}

fn greeted(stream: &mut TcpStream) -> io::Result<(Purpose, usize, usize)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(GREETING))?;
    let mut said = [0; 17];
    stream.read_exact(&mut said)?;
    let number = |at: usize| {
        let word: [u8; 4] = said[at..at + 4].try_into().unwrap_or_default();
        u32::from_le_bytes(word) as usize
    };
    let purpose = match (&said[..8] == MAGIC, said[8]) {
        (true, 0) => Purpose::Data,
        (true, 1) => Purpose::Control,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    stream.set_read_timeout(None)?;
    stream.set_nodelay(true)?;
    Ok((purpose, number(9), number(13)))
}

/// A connection to the first process, which may start later than this one.
pub(super) fn connect(
    (host, port): (&str, u16),
    purpose: Purpose,
    rank: usize,
    world: usize,
) -> Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    let mut greeting = MAGIC.to_vec();
    greeting.push(purpose as u8);
    greeting.extend_from_slice(&(rank as u32).to_le_bytes());
    greeting.extend_from_slice(&(world as u32).to_le_bytes());
    let greet = |mut stream: TcpStream| -> io::Result<TcpStream> {
        let mut answer = [0; MAGIC.len()];
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE / 4))?;
        stream.write_all(&greeting)?;
        stream.read_exact(&mut answer)?;
        stream.set_read_timeout(None)?;
        match answer == *MAGIC {
            true => Ok(stream),
            false => Err(io::Error::other("somebody else answers there")),
        }
    };
    let attempt = || -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, GREETING).and_then(greet) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    loop {
        match attempt() {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => {
                return Err(Error::new(format!(
                    "rank {rank} cannot reach rank 0 at {host}:{port} ({error}); check MASTER_ADDR and MASTER_PORT, and that \
                     rank 0 was started"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn trouble(error: io::Error) -> Error {
    Error::new(format!("the connection between ranks failed: {error}"))
}

/// A message is its length and its bytes.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(&(bytes.len() as u64).to_le_bytes())?;
    stream.write_all(bytes)
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    stream.read_exact(&mut len)?;
    let mut bytes = Vec::new();
    let len = u64::from_le_bytes(len);
    let read = stream.take(len).read_to_end(&mut bytes)?;
    match read as u64 == len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Hub {
    /// The first process hears everybody and answers each; `answer` makes the answer for a rank of what all said.
    fn talk(
        &self,
        mine: &[u8],
        answer: impl Fn(&[Vec<u8>], usize) -> Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let mut peers = self.peers.lock().unwrap_or_else(|e| e.into_inner());
        if self.rank != 0 {
            send(&mut peers[0], mine)?;
            return receive(&mut peers[0]);
        }
        let mut all = vec![mine.to_vec()];
        for peer in peers.iter_mut() {
            all.push(receive(peer)?);
        }
        for (peer, rank) in peers.iter_mut().zip(1..) {
            send(peer, &answer(&all, rank))?;
        }
        Ok(answer(&all, 0))
    }

    fn lost(&self, error: io::Error) -> rrvq_tensor::Error {
        // The watcher knows who it was and says it.
        std::thread::sleep(super::watch::SAID);
        rrvq_tensor::Error::new(format!("the connection between ranks was lost: {error}"))
    }
}

impl Collective for Hub {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn gather(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<Vec<u8>>> {
        let all = |all: &[Vec<u8>], _: usize| {
            let lengths = all.iter().map(|bytes| bytes.len() as u64);
            let mut message: Vec<u8> = lengths.flat_map(u64::to_le_bytes).collect();
            message.extend(all.iter().flatten());
            message
        };
        let said = self.talk(mine, all).map_err(|error| self.lost(error))?;
        let (lengths, mut rest) = said.split_at_checked(8 * self.world).unwrap_or_default();
        let mut found = Vec::with_capacity(self.world);
        for length in lengths.chunks_exact(8) {
            let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
            let (bytes, after) = rest.split_at_checked(length as usize).unwrap_or_default();
            found.push(bytes.to_vec());
            rest = after;
        }
        Ok(found)
    }

    fn exchange(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<u8>> {
        let size = mine.len() / self.world;
        let blocks = |all: &[Vec<u8>], rank: usize| {
            let block = |bytes: &Vec<u8>| {
                let from = bytes.get(rank * size..(rank + 1) * size);
                from.unwrap_or_default().to_vec()
            };
            all.iter().flat_map(block).collect()
        };
        self.talk(mine, blocks).map_err(|error| self.lost(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::launch::Launcher;
    use super::*;

    fn free_port() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    fn launch(rank: usize, world: usize, port: u16) -> Launch {
        Launch {
            launcher: Launcher::Ranks,
            rank,
            world,
            local: rank,
            host: "127.0.0.1".into(),
            port,
        }
    }

    #[test]
    fn bytes_reach_everybody_and_strangers_are_let_go() {
        let port = free_port();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A browser at the wrong port; it may come too early.
                std::thread::sleep(Duration::from_millis(50));
                if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
                }
            });
            for rank in 0..3 {
                scope.spawn(move || {
                    let (hub, controls) = meet(&launch(rank, 3, port)).unwrap();
                    let others: Vec<usize> = controls.iter().map(|(rank, _)| *rank).collect();
                    assert_eq!(others, if rank == 0 { vec![1, 2] } else { vec![0] });
                    let said = vec![rank as u8; rank];
                    assert_eq!(hub.gather(&said).unwrap(), [vec![], vec![1], vec![2, 2]]);
                    let mine: Vec<u8> = (0..6).map(|i| 10 * rank as u8 + i).collect();
                    let block = |from: usize| (10 * from + 2 * rank) as u8;
                    let expected: Vec<u8> = (0..3)
                        .flat_map(|from| [block(from), block(from) + 1])
                        .collect();
                    assert_eq!(hub.exchange(&mine).unwrap(), expected);
                });
            }
        });
    }

    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let said = meet(&launch(0, 2, port))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            said.contains(&format!("port {port}")) && said.contains("MASTER_PORT"),
            "{said}"
        );
    }
}
