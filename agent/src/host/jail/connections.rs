//! Deletes the entries of jails from the machine's connection tracking. The machine masquerades the packets of jobs, so
//! it tracks their connections in its own table, where an entry may remain for days after both ends are gone; a full
//! table prevents all new connections. The table is read and changed by netlink (`libnetfilter_conntrack(3)` uses the
//! same messages).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Time limit for a response of the kernel, which it produces while it handles the request.
const ANSWERS: Duration = Duration::from_secs(5);
/// How often the table is read: entries may move during a read.
const ROUNDS: u32 = 4;
/// The number of deletions per request, so that all responses have room.
const AT_ONCE: usize = 64;
/// The longest response (`netlink(7)`), in bytes.
const ANSWER: usize = 64 * 1024;

/// Constants of `linux/netlink.h` and `linux/netfilter/nfnetlink_conntrack.h`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const INET: u8 = 2;
const TUPLE: u16 = 1;
const ID: u16 = 12;
const ZONE: u16 = 18;
const ADDRESSES: u16 = 1;
const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
/// Mask that removes the flags from an attribute's type.
const KIND: u16 = 0x3fff;
/// Lengths of a message's header and of the netfilter part that follows it.
const HEAD: usize = 16;
const OWN: usize = 4;

/// Deletes each entry from or to an address of this network. Returns the number of entries that reappeared each time.
///
/// # Errors
/// The kernel has no such table, or does not permit changes to it.
pub(crate) fn forget(network: Ipv4Addr, prefix: u32) -> io::Result<usize> {
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER))?;
    set_socket_timeout(&kernel, Timeout::Recv, Some(ANSWERS))?;
    let mut left = 0;
    for round in 0..ROUNDS {
        let found = entries(&kernel, round, (network, prefix))?;
        left = found.len();
        if found.is_empty() {
            break;
        }
        for (number, some) in (1..).zip(found.chunks(AT_ONCE)) {
            delete(&kernel, ROUNDS * number + round, some)?;
        }
    }
    Ok(left)
}

/// Returns the attributes that identify each entry of a network in the table.
fn entries(kernel: &OwnedFd, number: u32, network: (Ipv4Addr, u32)) -> io::Result<Vec<Vec<u8>>> {
    send(kernel, &message(GET, REQUEST | DUMP, number, &[]), SendFlags::empty())?;
    let mut found = Vec::new();
    answers(kernel, number, |kind, body| {
        match kind {
            DONE => return Ok(true),
            NEW => found.extend(body.get(OWN..).and_then(|entry| name_of(entry, network))),
            _ => {}
        }
        Ok(false)
    })?;
    Ok(found)
}

/// Deletes entries. An entry that has disappeared meanwhile is no error.
fn delete(kernel: &OwnedFd, number: u32, names: &[Vec<u8>]) -> io::Result<()> {
    let last = names.len().saturating_sub(1);
    let flags = |index| if index == last { REQUEST | ACK } else { REQUEST };
    let all = names.iter().enumerate().flat_map(|(index, name)| {
        let number = if index == last { number } else { 0 };
        message(DELETE, flags(index), number, name)
    });
    send(kernel, &all.collect::<Vec<u8>>(), SendFlags::empty())?;
    answers(kernel, number, |_, _| Ok(true))
}

/// Reads the kernel's responses, up to the last one with this sequence number.
fn answers(
    kernel: &OwnedFd,
    number: u32,
    mut last: impl FnMut(u16, &[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; ANSWER];
    loop {
        let (_, read) = recv(kernel, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..read).unwrap_or_default();
        while let Some((kind, of, body, more)) = first(rest) {
            if kind == ERROR {
                succeeded(body)?;
            }
            if of == number && last(kind, body)? {
                return Ok(());
            }
            rest = more;
        }
    }
}

/// Decodes a response of type [`ERROR`], which also reports success.
fn succeeded(body: &[u8]) -> io::Result<()> {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    let gone = Errno::NOENT.raw_os_error();
    if code == 0 || code == -gone { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

/// Splits off the first message. Returns its type, sequence number and body, and the remaining bytes.
fn first(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let number = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, number, bytes.get(HEAD..length)?, rest))
}

fn message(kind: u16, flags: u16, number: u32, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEAD + OWN + attributes.len()).expect("it is short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([INET, 0, 0, 0]);
    bytes.extend(attributes);
    bytes
}

/// Returns the attributes with which an entry is deleted, if it belongs to this network.
fn name_of(entry: &[u8], (network, prefix): (Ipv4Addr, u32)) -> Option<Vec<u8>> {
    let (_, tuple) = attributes(entry).find(|(kind, _)| *kind == TUPLE)?;
    let (_, addresses) = attributes(body(tuple)?).find(|(kind, _)| *kind == ADDRESSES)?;
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or_default();
    let within = |bytes: &[u8]| {
        body(bytes)
            .and_then(|address| address.first_chunk())
            .is_some_and(|address| (u32::from_be_bytes(*address) ^ u32::from(network)) & mask == 0)
    };
    let mut ends = attributes(body(addresses)?);
    if !ends.any(|(kind, end)| matches!(kind, SOURCE | DESTINATION) && within(end)) {
        return None;
    }
    let kept = attributes(entry).filter(|(kind, _)| matches!(*kind, TUPLE | ZONE | ID));
    Some(kept.flat_map(|(_, attribute)| padded(attribute)).collect())
}

fn padded(attribute: &[u8]) -> Vec<u8> {
    let mut bytes = attribute.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the payload of an attribute.
fn body(attribute: &[u8]) -> Option<&[u8]> {
    attribute.get(4..)
}

/// Iterates over attributes. Yields the type of each, and the attribute with its header.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & KIND;
        let found = bytes.get(..length).filter(|_| length >= 4)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAILS: (Ipv4Addr, u32) = (Ipv4Addr::new(198, 18, 0, 0), 15);

    fn attribute(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + body.len()).unwrap();
        padded(&[&length.to_ne_bytes()[..], &kind.to_ne_bytes(), body].concat())
    }

    /// Builds a tuple. Nested attributes carry a flag.
    fn tuple(kind: u16, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let ends = [attribute(SOURCE, &source), attribute(DESTINATION, &destination)].concat();
        let ports = attribute(2 | 0x8000, &attribute(1, &[6]));
        attribute(kind | 0x8000, &[attribute(ADDRESSES | 0x8000, &ends), ports].concat())
    }

    #[test]
    fn an_entry_is_of_jails_by_the_ends_that_its_first_packet_had() {
        let (jail, other, machine) = ([198, 19, 255, 254], [203, 0, 113, 1], [198, 20, 0, 1]);
        let status = attribute(3, &[0, 0, 0, 8]);
        let named = |source, destination| {
            let own = [attribute(ZONE, &[0, 3]), attribute(ID, &[1, 2, 3, 4])].concat();
            let entry =
                [tuple(TUPLE, source, destination), tuple(2, other, jail), status.clone(), own.clone()];
            (name_of(&entry.concat(), JAILS), [tuple(TUPLE, source, destination), own].concat())
        };
        for (source, destination) in [(jail, other), (other, jail)] {
            let (name, whole) = named(source, destination);
            assert_eq!(name, Some(whole), "its tuple, zone and number");
        }
        assert_eq!(named(machine, other).0, None);
        assert_eq!(name_of(&[], JAILS), None);
        assert_eq!(name_of(&[255, 255, 1, 0, 0], JAILS), None, "cut short");
    }

    #[test]
    fn messages_are_told_apart_and_what_is_gone_is_no_error() {
        let two = [message(NEW, 0, 7, &[1, 2, 3, 4]), message(DONE, 0, 7, &[])].concat();
        let (kind, number, body, rest) = first(&two).unwrap();
        assert_eq!((kind, number, body), (NEW, 7, &[INET, 0, 0, 0, 1, 2, 3, 4][..]));
        assert_eq!(first(rest).map(|(kind, ..)| kind), Some(DONE));
        assert!(first(&two[..10]).is_none() && first(&[]).is_none());
        assert!(succeeded(&0_i32.to_ne_bytes()).is_ok() && succeeded(&(-2_i32).to_ne_bytes()).is_ok());
        assert_eq!(succeeded(&(-1_i32).to_ne_bytes()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
