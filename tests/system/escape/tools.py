"""System calls for plants: `tools.py WORD [ARGUMENT...]`. The canary is an argument where it is to stand in the process's own
words, else it is in the environment (C).
"""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
ADD_KEY, KEYCTL = (248, 250) if X86 else (217, 219)
MQ_OPEN, MQ_SEND, MQ_RECEIVE = (240, 242, 243) if X86 else (180, 182, 183)
SESSION, USER, USER_SESSION = -3, -4, -5
CANARY = os.environ.get("C", "").encode()


def call(*words: object) -> int:
    """A call by number or by name; an error ends us."""
    first, *rest = words
    answer = LIBC.syscall(first, *rest) if isinstance(first, int) else getattr(LIBC, first)(*rest)
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{first}: {os.strerror(code)}")
    return answer


def forever() -> None:
    while True:
        time.sleep(3600)


def detach() -> None:
    """A child goes on; our caller does not wait for it."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.chdir("/")


# Keys.

def forget() -> None:
    """Lets go of the rings that a session brought, so that nothing is counted as this user's."""
    rings = [USER_SESSION, USER]
    try:
        rings.append(call(KEYCTL, 22, -1, SESSION, 0, 0))
    except OSError:
        pass
    for ring in rings:
        try:
            call(KEYCTL, 21, ring, 0, 0, 0)
        except OSError:
            pass


def key(ring: str, kind: str = "user") -> None:
    """A key that this user may read whoever possesses it."""
    place = {"user": USER, "user-session": USER_SESSION}.get(ring)
    if ring == "persistent":
        place = call(KEYCTL, 22, -1, SESSION, 0, 0)
    call(KEYCTL, 8, place, SESSION, 0, 0)
    # The kernel wants a service named in those of a login.
    name = b"lab:" + CANARY if kind == "logon" else CANARY
    made = call(ADD_KEY, kind.encode(), name, CANARY, len(CANARY), place)
    call(KEYCTL, 5, made, 0x3F3F0000, 0, 0)


def key_alone() -> None:
    """A key in the user's ring, and the ring of its sessions gone: as many as if there were none."""
    key("user")
    call(KEYCTL, 21, USER_SESSION, 0, 0, 0)


def key_hidden() -> None:
    """A key with all rights but one taken away."""
    call(KEYCTL, 8, USER, SESSION, 0, 0)
    made = call(ADD_KEY, b"user", CANARY, CANARY, len(CANARY), USER)
    call(KEYCTL, 21, USER_SESSION, 0, 0, 0)
    call(KEYCTL, 5, made, 0x00010000, 0, 0)


def keys_many() -> None:
    call(KEYCTL, 8, USER, SESSION, 0, 0)
    for index in range(190):
        name = CANARY + str(index).encode()
        try:
            call(ADD_KEY, b"user", name, name, len(name), USER)
        except OSError as why:
            if why.errno == errno.EDQUOT:
                return
            raise


def key_held(name: str) -> None:
    """A named session keyring that a process keeps."""
    detach()
    call(KEYCTL, 1, name.encode(), 0, 0, 0)
    call(ADD_KEY, b"user", name.encode(), name.encode(), len(name), SESSION)
    forever()


# Objects of System V; they are known by their key.

def number() -> int:
    return zlib.crc32(CANARY) & 0x7FFFFFFF


def ipc(kind: str, mode: str = "600") -> None:
    bits = 0o1000 | int(mode, 8)
    if kind == "shm":
        made = call("shmget", number(), 4096, bits)
        if mode == "000":
            return
        LIBC.shmat.restype = ctypes.c_void_p
        place = LIBC.shmat(made, None, 0)
        ctypes.memmove(place, CANARY, len(CANARY))
    elif kind == "sem":
        call("semget", number(), 1, bits)
    else:
        made = call("msgget", number(), bits)
        call("msgsnd", made, struct.pack("l", 1) + CANARY, len(CANARY), 0)


def ipc_given(kind: str) -> None:
    """Made by us, and another's from then on."""
    ipc(kind)
    made = call({"shm": "shmget", "sem": "semget", "msg": "msgget"}[kind], number(), *((0,) if kind == "msg" else (0, 0)))
    held = ctypes.create_string_buffer(256)
    if kind == "sem":
        call("semctl", made, 0, 2, held)
    else:
        call(f"{kind}ctl", made, 2, held)
    struct.pack_into("II", held, 4, 65534, 65534)
    if kind == "sem":
        call("semctl", made, 0, 1, held)
    else:
        call(f"{kind}ctl", made, 1, held)


def ipc_there(kind: str) -> None:
    """Whether it stands in the table, whoever may use it."""
    with open(f"/proc/sysvipc/{kind}") as table:
        if not any(line.split()[0] == str(number()) for line in list(table)[1:]):
            sys.exit(1)
    print(f"{kind} {number()}")


def sems() -> None:
    made = 0
    for index in range(500):
        if LIBC.semget(number() + index, 100, 0o1600) == -1:
            break
        made += 1
    print(made)


# Queues.

def queue(mode: str = "600") -> None:
    made = call(MQ_OPEN, CANARY, os.O_CREAT | os.O_RDWR, int(mode, 8), None)
    call(MQ_SEND, made, CANARY, len(CANARY), 0, None)


def queue_there() -> None:
    """What it holds; put back, for others look too."""
    made = call(MQ_OPEN, CANARY, os.O_RDWR | os.O_NONBLOCK, 0, None)
    held = ctypes.create_string_buffer(8192)
    size = call(MQ_RECEIVE, made, held, 8192, None, None)
    call(MQ_SEND, made, held, size, 0, None)
    print(f"message {held.raw[:size].decode()}")


# Processes.

def leaderless(_: str) -> None:
    """The first thread ends, another goes on."""
    detach()
    threading.Thread(target=forever).start()
    LIBC.syscall(60 if X86 else 93, 0)


def traced(_: str) -> None:
    detach()
    if (child := os.fork()) == 0:
        call("ptrace", 0, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        forever()
    os.waitpid(child, os.WUNTRACED)
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    forever()


def undumpable(_: str) -> None:
    detach()
    call("prctl", 4, 0, 0, 0, 0)
    forever()


def named(name: str, _: str) -> None:
    detach()
    call("prctl", 15, name.encode().decode("unicode_escape").encode(), 0, 0, 0)
    forever()


def memory(name: str, flags: str = "0") -> None:
    descriptor = call("memfd_create", name.encode(), int(flags, 0))
    if not int(flags, 0):
        os.write(descriptor, name.encode())
    detach()
    forever()


def ring(_: str) -> None:
    """A kernel's thread that polls for us. Where there is none the job is told so."""
    held = ctypes.create_string_buffer(120)
    struct.pack_into("IIIII", held, 0, 0, 0, 2, 0, 600_000)
    os.close(call(425, 8, held))
    detach()
    call(425, 8, held)
    forever()


def storm(_: str, count: str = "40", pause: str = "0.005") -> None:
    """So many processes, each of which has gone before it can be ended. Where nobody reaps them each stays one of the
    machine's tasks."""
    detach()
    for _ in range(int(count)):
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
                time.sleep(float(pause))


def abstract(name: str) -> None:
    place = socket.socket(socket.AF_UNIX)
    place.bind(b"\0" + name.encode())
    place.listen()
    detach()
    forever()


def listener(name: str, port: str, family: str = "4") -> None:
    place = socket.socket(socket.AF_INET if family == "4" else socket.AF_INET6)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1" if family == "4" else "::1", int(port)))
    place.listen()
    detach()
    while True:
        place.accept()[0].send(name.encode())


def connect(port: str, host: str = "127.0.0.1") -> None:
    with socket.create_connection((host, int(port)), 3) as place:
        print(place.recv(200).decode())


def in_flight(name: str) -> None:
    """Descriptors that are in no process's table, but in a socket that is in itself."""
    a, b = socket.socketpair()
    c, d = socket.socketpair()
    held = call("memfd_create", name.encode(), 0)
    for to, what in ((a, [held, d.fileno()]), (c, [b.fileno()])):
        to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", what))])
    os.close(held)
    b.close()
    d.close()
    detach()
    forever()


def deleted(path: str) -> None:
    file = open(path, "w")
    file.write(path)
    file.flush()
    os.unlink(path)
    detach()
    forever()


def vfork(_: str) -> None:
    """A parent that waits for a child that shares its memory and does not go on."""
    detach()
    if LIBC.vfork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    forever()


def zombies(_: str, count: str) -> None:
    detach()
    for _ in range(int(count)):
        if os.fork() == 0:
            os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    forever()


def deaf(_: str) -> None:
    """Ignores what can be ignored, and asks to be the last to go when memory is short."""
    detach()
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    forever()


def adopter(_: str) -> None:
    """Orphans come to it, and it starts anew what ends."""
    detach()
    call("prctl", 36, 1, 0, 0, 0)
    for _ in range(5):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                forever()
            os._exit(0)
    forever()


def terminal(_: str) -> None:
    """Keeps a terminal with words in its input."""
    master, slave = os.openpty()
    os.write(master, _.encode())
    detach()
    forever()


def inject() -> None:
    """Words put into the input of whoever reads a terminal after us."""
    with open("/dev/tty", "rb+", buffering=0) as place:
        for letter in CANARY:
            fcntl.ioctl(place, 0x5412, bytes([letter]))


def locked(path: str, _: str) -> None:
    file = open(path)
    fcntl.flock(file, fcntl.LOCK_EX)
    detach()
    forever()


def lock_free(path: str) -> None:
    """Succeeds while it is locked."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{path} is locked")
            return
    sys.exit(1)


def watcher(name: str) -> None:
    """Waits for the next run's step and adds to it."""
    detach()
    while True:
        for directory in ("/var/lib/runyard/claims/", ):
            for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        for word in file.read().split(b"\0"):
                            if word.startswith(b"RUNNER_TEMP=" + directory.encode()):
                                with open(word[12:] + b"/" + name.encode(), "w") as mark:
                                    mark.write(name)
                except OSError:
                    pass
        time.sleep(0.2)


def subordinate(_: str) -> None:
    """Of an id that is not the account's, with the way back kept open."""
    detach()
    os.setresuid(1, 1, 0)
    call(KEYCTL, 1, None, 0, 0, 0)
    os.closerange(3, 64)
    forever()


def as_other(*words: str) -> None:
    """What the words say, as the user of a namespace that a subordinate id is."""
    os.setresgid(1, 1, 1)
    os.setresuid(1, 1, 1)
    WORDS[words[0]](*words[1:])


def fuse(name: str) -> None:
    """Root of a namespace mounts a file system of its own that never answers, and has somebody wait in it."""
    place = f"/tmp/{name}"
    os.makedirs(place, exist_ok=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    call("mount", b"fuse", place.encode(), b"fuse", 0, options)
    detach()
    for _ in range(2):
        if os.fork() == 0:
            os.chdir(place)
            os.listdir(".")
            forever()
    forever()


def fuse_deadlock(name: str) -> None:
    """One process both serves a file system, without an answer, and waits in it: no other end of the connection is
    there that could be closed."""
    place = f"/tmp/{name}"
    os.makedirs(place, exist_ok=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    call("mount", b"fuse", place.encode(), b"fuse", 0, options)
    detach()
    begin = os.read(server, 1 << 17)
    body = struct.pack("IIIIHHIIHHI", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0) + bytes(28)
    os.write(server, struct.pack("IiQ", 16 + len(body), 0, struct.unpack_from("Q", begin, 8)[0]) + body)
    threading.Thread(target=lambda: os.stat(f"{place}/x"), daemon=True).start()
    os.read(server, 1 << 17)
    forever()


def namespaces_many(count: str) -> None:
    """So many processes at the same time, each in a network namespace of its own."""
    children = []
    try:
        for _ in range(int(count)):
            here, there = os.pipe()
            if (child := os.fork()) == 0:
                os.close(here)
                os.write(there, b"0" if LIBC.unshare(0x50000000) == 0 else b"1")
                forever()
            os.close(there)
            children.append(child)
            if os.read(here, 1) != b"0":
                raise OSError(errno.ENOSPC, f"{len(children) - 1} namespaces")
            os.close(here)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def watchers_many(count: str) -> None:
    with open("/proc/sys/fs/inotify/max_user_instances") as file:
        if int(file.read()) <= int(count):
            sys.exit(77)
    for _ in range(int(count)):
        call("inotify_init")


def connections_many(host: str, count: str) -> None:
    """Begins to connect to an address that does not answer; what was begun is kept open until the process ends."""
    kept = []
    for _ in range(int(count)):
        place = socket.socket()
        place.setblocking(False)
        place.connect_ex((host, 4711))
        kept.append(place)


def tracked(host: str, count: str) -> None:
    """As root: whether this network namespace tracks so many connections to there (ctnetlink)."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        kernel.send(struct.pack("IHHIIBBH", 20, 0x101, 0x301, 1, 0, socket.AF_INET, 0, 0))
        found, address = 0, struct.pack("HH", 8, 2) + socket.inet_aton(host)
        while True:
            data = kernel.recv(1 << 16)
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from("IH", data, at)
                if kind in (2, 3):
                    print(f"{found} connections to {host}")
                    sys.exit(0 if found >= int(count) else 1)
                found += address in data[at:at + length]
                at += (length + 3) & ~3


def nested_key(name: str) -> None:
    """Root of namespaces of its own leaves a key in them, and a connection that keeps them: nobody holds it, and nothing
    that it sends arrives."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open("/proc/sys/net/ipv4/tcp_orphan_retries", "w") as file:
        file.write("8")
    call(KEYCTL, 8, USER, SESSION, 0, 0)
    made = call(ADD_KEY, b"user", name.encode(), name.encode(), len(name), USER)
    call(KEYCTL, 5, made, 0x3F3F0000, 0, 0)
    place = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(place.getsockname())
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    near.send(b"x" * 5000)


def burn(seconds: str) -> None:
    while time.process_time() < float(seconds):
        pass


def burnt(seconds: str) -> None:
    """Whether its own control group has used the processor for so long."""
    with open("/proc/self/cgroup") as file:
        group = next(line[3:].strip() for line in file if line.startswith("0::"))
    with open(f"/sys/fs/cgroup{group}/cpu.stat") as file:
        used = int(next(line.split()[1] for line in file if line.startswith("usage_usec"))) / 1e6
    print(f"the control group has used {used} s")
    sys.exit(0 if used >= float(seconds) else 1)


def nested(name: str, depth: str) -> None:
    """So many process namespaces, one within the other."""
    detach()
    for _ in range(int(depth)):
        call("unshare", 0x20000000)
        if child := os.fork():
            os.waitpid(child, 0)
            os._exit(0)
    forever()


# Depth, and size.

def deep(top: str, depth: str) -> None:
    os.mkdir(top)
    os.chdir(top)
    for _ in range(int(depth)):
        os.mkdir("d")
        os.chdir("d")


def wide(top: str, count: str) -> None:
    os.mkdir(top)
    for index in range(int(count)):
        os.close(os.open(f"{top}/{index}", os.O_CREAT | os.O_WRONLY))


def fill(path: str, most: str = "4096") -> None:
    """Until nothing more goes in, or so many MiB are."""
    block = b"x" * (1 << 20)
    with open(path, "wb", buffering=0) as file:
        file.write(CANARY)
        try:
            for _ in range(int(most)):
                file.write(block)
        except OSError as why:
            if why.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise


def names(top: str) -> None:
    """Until there is no inode left."""
    os.makedirs(top, exist_ok=True)
    index = 0
    try:
        while True:
            os.close(os.open(f"{top}/{index}", os.O_CREAT | os.O_WRONLY))
            index += 1
    except OSError as why:
        if why.errno != errno.ENOSPC:
            raise


# The kernel's own settings.

def get(host: str) -> None:
    with socket.create_connection((host, 80), 2) as place:
        place.sendall(b"PUT /latest/api/token HTTP/1.1\r\nHost: metadata\r\nConnection: close\r\n\r\n")
        print(place.recv(60).decode(errors="replace").splitlines()[0])


def family(number: str, kind: str = "3") -> None:
    socket.socket(int(number), int(kind)).close()


def uring_family(number: str) -> None:
    """A socket that `socket(2)` does not make."""
    parameters = ctypes.create_string_buffer(120)
    ring = call(425, 8, parameters)
    entries, = struct.unpack_from("I", parameters, 0)
    # Offsets of the head, tail, mask, entries, flags, dropped and array of the submissions; the completions follow.
    offsets = struct.unpack_from("7I", parameters, 40)
    answers = struct.unpack_from("6I", parameters, 80)
    rings = mmap.mmap(ring, answers[5] + 64 * 16 * entries, offset=0)
    work = mmap.mmap(ring, 64 * entries, offset=0x10000000)
    struct.pack_into("BBHiQQII", work, 0, 45, 0, 0, int(number), 1, 0, 0, 0)
    struct.pack_into("I", rings, offsets[6], 0)
    struct.pack_into("I", rings, offsets[1], 1)
    call(426, ring, 1, 1, 1, None, 0)
    made, = struct.unpack_from("i", rings, answers[5] + 8)
    if made < 0:
        raise OSError(-made, os.strerror(-made))
    os.close(made)


def old_family(number: str, kind: str = "1") -> None:
    """The same by the call of 32 bits, whose arguments are where no filter looks."""
    if not X86:
        sys.exit(77)
    # Below 4 GiB (MAP_32BIT): mov eax, 102; mov ebx, 1; mov ecx, arguments; int 0x80; ret.
    LIBC.mmap.restype = ctypes.c_void_p
    place = LIBC.mmap(None, 4096, 7, 0x62, -1, 0)
    code = b"\x53\xb8\x66\0\0\0\xbb\x01\0\0\0\xb9" + struct.pack("I", place + 64) + b"\xcd\x80\x5b\xc3"
    ctypes.memmove(place, code.ljust(64, b"\x90") + struct.pack("III", int(number), int(kind), 0), 76)
    made = ctypes.CFUNCTYPE(ctypes.c_int)(place)()
    if made < 0:
        raise OSError(-made, os.strerror(-made))


def clock() -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 1)


def hostname(name: str) -> None:
    socket.sethostname(name)


def numbered(number: str, *words: str) -> None:
    """A system call by its number on x86-64."""
    if not X86:
        sys.exit(77)
    call(int(number), *(int(word, 0) for word in words))


def port(number: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as place:
        place.bind(("127.0.0.53", int(number)))


WORDS = {name.replace("_", "-"): value for name, value in list(globals().items()) if callable(value) and name.islower()}

if __name__ == "__main__":
    try:
        WORDS[sys.argv[1]](*sys.argv[2:])
    except OSError as why:
        print(f"{sys.argv[1]}: {why}")
        sys.exit(1)
