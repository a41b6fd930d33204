"""What a VPC serves: addresses for machines, by the number in a machine's hardware address, which we chose; and names, of
which it knows none here.
"""

import socket
import struct
import threading

COOKIE = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5


def hardware(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def option(number: int, value: bytes) -> bytes:
    return bytes([number, len(value)]) + value


def kind(options: bytes) -> int | None:
    """Of a message; none where it has none."""
    at = 0
    while at + 1 < len(options) and options[at] != 255:
        if options[at] == 0:
            at += 1
        elif options[at] == 53:
            return options[at + 2]
        else:
            at += 2 + options[at + 1]
    return None


def reply(message: bytes, network: str, first: int) -> bytes | None:
    if len(message) < 240 or message[0] != 1 or message[236:240] != COOKIE:
        return None
    answer = {DISCOVER: OFFER, REQUEST: ACK}.get(kind(message[240:]))
    if answer is None or message[28:33] != b"\x02\0\0\0\0":
        return None
    server, address = (socket.inet_aton(f"{network}{host}") for host in (1, first + message[33]))
    head = struct.pack("!4s4s2s2s4s4s4s4s", b"\x02\x01\x06\x00", message[4:8], b"\0\0", message[10:12], b"\0" * 4, address, server, b"\0" * 4)
    options = [option(53, bytes([answer])), option(54, server), option(51, struct.pack("!I", 3600)),
               option(1, socket.inet_aton("255.255.255.0")), option(3, server), b"\xff"]
    return head + message[28:44] + b"\0" * 192 + COOKIE + b"".join(options)


def no_such_name(question: bytes) -> bytes:
    return question[:2] + b"\x81\x83" + question[4:6] + b"\0" * 6 + question[12:]


def serve(device: str, network: str, first: int) -> None:
    """On a device, for `network` (as `198.51.100.`), whose host 1 is the way out; machine n is host `first` + n."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    link.bind(("", 67))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind((f"{network}1", 53))

    def addresses() -> None:
        while True:
            if said := reply(link.recv(2048), network, first):
                link.sendto(said, ("255.255.255.255", 68))

    def answers() -> None:
        while True:
            question, who = names.recvfrom(2048)
            names.sendto(no_such_name(question), who)
    for task in (addresses, answers):
        threading.Thread(target=task, daemon=True).start()
