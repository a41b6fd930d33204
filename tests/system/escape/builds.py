"""What a build finds again on a machine that keeps directories: a small Rust program by cargo, and packages by npm, from a
registry that the laboratory makes up and serves itself, in runs of the real yard and agent. Whose runs write what is kept,
GitHub's record of each says; the stand-in's record is what is told here. Called by `run --builds`.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import threading
import time
from pathlib import Path

CRATES = 12
PACKAGES = 8
# Of each crate: enough that compiling it takes a moment.
FUNCTIONS = 25
RUST = "/usr/local/rust"
SOURCE = Path("/srv/lab/source")
REMOTE = Path("/srv/lab/remote.git")
# As a class names them.
KEEP = [{"name": "cargo", "path": "~/.cargo/registry"}, {"name": "target", "path": "~/target"}, {"name": "src", "path": "~/src"},
        {"name": "npm", "path": "~/.npm"}]
MAIN = {"event": "push"}
FORK = {"event": "pull_request", "head_branch": "patch-1", "head_sha": "1" * 40, "head_repository": "mallory/app"}
STEP = "/usr/bin/python3 -I -c \"import sys; sys.path.insert(0, '/srv/lab/tests'); import builds; builds.main(*sys.argv[1:])\""


# What runs are made of.


def toolchain(place: Path) -> None:
    """Copies this machine's Rust, as far as it is needed to compile for itself."""
    said = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True)
    sysroot = Path(said.stdout.strip())
    said = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: "))
    shown = subprocess.run([sysroot / "bin/cargo", "--version"], check=False, capture_output=True)
    cargo = sysroot / "bin/cargo" if shown.returncode == 0 else Path(shutil.which("cargo"))
    (place / "bin").mkdir(parents=True)
    shutil.copy(cargo, place / "bin/cargo")
    shutil.copy(sysroot / "bin/rustc", place / "bin/rustc")
    (place / "lib/rustlib").mkdir(parents=True)
    for library in (sysroot / "lib").glob("*.so*"):
        shutil.copy(library, place / "lib")
    subprocess.run(["cp", "-a", sysroot / "lib/rustlib" / host, place / "lib/rustlib"], check=True)
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)


def packed(top: str, files: dict[str, str]) -> bytes:
    """A compressed archive of these files below a directory of that name, the same each time."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(text), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(data.getvalue(), mtime=0)


def crate(number: int) -> tuple[str, list[str], bytes]:
    """A library's name, what it depends on, and its archive. The first is a macro, the second has a build script."""
    name, needs = f"lab-{number:02}", [f"lab-{other:02}" for other in {0, 1, number // 2} if 1 < number and other < number]
    manifest = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'
    body = "".join(f"pub fn f{n}<T: Into<u64>>(x: T) -> String {{ let y: u64 = x.into(); format!(\"{{}}-{{}}-{n}\", y, y + {n}) }}\n"
                   f"pub fn g{n}(x: u32) -> usize {{ let mut v: Vec<String> = (0..x).map(|i| f{n}(i)).collect(); v.sort(); v.len() }}\n"
                   for n in range(FUNCTIONS))
    files = {"src/lib.rs": f"pub fn sum(x: u32) -> usize {{ x as usize + {number} }}\n{body}"}
    if number == 0:
        manifest += "[lib]\nproc-macro = true\n"
        files["src/lib.rs"] = ("use proc_macro::TokenStream;\n#[proc_macro]\n"
                               "pub fn seven(_: TokenStream) -> TokenStream { \"7\".parse().unwrap() }\n")
    if number == 1:
        files["build.rs"] = 'fn main() { println!("cargo:rerun-if-changed=build.rs"); }\n'
    files["Cargo.toml"] = manifest + "[dependencies]\n" + "".join(f'{other} = "1.0.0"\n' for other in needs)
    return name, needs, packed(f"{name}-1.0.0", files)


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves crates as a sparse registry and packages as npm's, and counts what goes out."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes] = {}
    bytes = requests = 0
    counting = threading.Lock()

    def do_GET(self) -> None:
        data = self.files.get(self.path.split("?")[0])
        with self.counting:
            Registry.requests += 1
            Registry.bytes += len(data or b"")
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_: object) -> None:
        pass


def make(address: str) -> tuple[str, str]:
    """Fills the registry at that address; the two lock files."""
    crates = [crate(number) for number in range(CRATES)]
    Registry.files["/index/config.json"] = json.dumps({"dl": f"{address}/crates/{{crate}}/{{version}}"}).encode()
    lock = ["version = 4\n", '[[package]]\nname = "app"\nversion = "0.1.0"\ndependencies = [\n'
            + "".join(f' "{name}",\n' for name, _, _ in crates) + "]\n"]
    for name, needs, data in crates:
        digest = hashlib.sha256(data).hexdigest()
        deps = [{"name": other, "req": "^1.0.0", "features": [], "optional": False, "default_features": True, "target": None,
                 "kind": "normal"} for other in needs]
        entry = {"name": name, "vers": "1.0.0", "deps": deps, "cksum": digest, "features": {}, "yanked": False}
        Registry.files[f"/index/{name[:2]}/{name[2:4]}/{name}"] = json.dumps(entry).encode() + b"\n"
        Registry.files[f"/crates/{name}/1.0.0"] = data
        lock.append(f'[[package]]\nname = "{name}"\nversion = "1.0.0"\n'
                    f'source = "registry+https://github.com/rust-lang/crates.io-index"\nchecksum = "{digest}"\n'
                    + ("dependencies = [\n" + "".join(f' "{other}",\n' for other in sorted(needs)) + "]\n" if needs else ""))
    names, tree = [f"lab-js-{number}" for number in range(PACKAGES)], {}
    for name in names:
        data = packed("package", {"package.json": json.dumps({"name": name, "version": "1.0.0"}), "index.js": f"// {secrets.token_hex(4000)}\n"})
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        url = f"{address}/npm/{name}/-/{name}-1.0.0.tgz"
        Registry.files[f"/npm/{name}/-/{name}-1.0.0.tgz"] = data
        Registry.files[f"/npm/{name}"] = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
            "name": name, "version": "1.0.0", "dist": {"tarball": url, "integrity": integrity}}}}).encode()
        tree[f"node_modules/{name}"] = {"version": "1.0.0", "resolved": url, "integrity": integrity}
    root = {"name": "app", "version": "1.0.0", "dependencies": dict.fromkeys(names, "1.0.0")}
    return "\n".join(lock), json.dumps({"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": True,
                                        "packages": {"": root, **tree}})


def git(*words: str) -> None:
    author = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "lab"), ("EMAIL", "lab@lab"))}
    subprocess.run(["git", *words], check=True, env=os.environ | author, stdout=subprocess.DEVNULL)


def project(address: str) -> None:
    """The repository that runs check out."""
    cargo_lock, npm_lock = make(address)
    for settings in ("/etc/gitconfig", "/usr/local/etc/gitconfig"):
        # The repository is root's, and jobs fetch from it by its path.
        Path(settings).parent.mkdir(exist_ok=True)
        Path(settings).write_text("[safe]\n\tdirectory = *\n")
    names = [f"lab-{number:02}" for number in range(CRATES)]
    uses = " + ".join(f"lab_{number:02}::sum(1)" for number in range(1, CRATES))
    files = {
        "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
                      + "".join(f'{name} = "1.0.0"\n' for name in names),
        "Cargo.lock": cargo_lock,
        ".cargo/config.toml": f'[source.crates-io]\nreplace-with = "lab"\n[source.lab]\nregistry = "sparse+{address}/index/"\n',
        "src/main.rs": f'fn main() {{ println!("{{}}", {uses} + lab_00::seven!()); }}\n',
        "package.json": json.dumps(json.loads(npm_lock)["packages"][""]), "package-lock.json": npm_lock,
        ".npmrc": f"registry={address}/npm/\naudit=false\nfund=false\nupdate-notifier=false\n",
    }
    for name, text in files.items():
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / name).write_text(text)
    git("init", "--quiet", "--initial-branch", "main", str(SOURCE))
    commit("first")
    git("clone", "--quiet", "--bare", str(SOURCE), str(REMOTE))
    git("-C", str(SOURCE), "remote", "add", "origin", str(REMOTE))


def commit(what: str) -> None:
    git("-C", str(SOURCE), "add", "--all")
    git("-C", str(SOURCE), "commit", "--quiet", "--message", what)


def serve() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


# A job's part.


def timed(words: list[str], where: Path, environment: dict[str, str]) -> tuple[float, str]:
    begun = time.monotonic()
    done = subprocess.run(words, cwd=where, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words[0]} ended with {done.returncode}: {done.stderr[-1500:]}")
    return round(time.monotonic() - begun, 3), done.stdout


def build(report: str) -> None:
    """The recipe of docs/kept-directories.md: a working copy, the registry and what was compiled are kept; `node_modules`
    is made anew from npm's cache."""
    import job

    home = Path.home()
    environment = os.environ | {"CARGO_TARGET_DIR": f"{home}/target", "PATH": f"{RUST}/bin:{os.environ['PATH']}"}
    copy = home / "src/app"
    if not copy.exists():
        timed(["git", "clone", "--quiet", str(REMOTE), str(copy)], home, environment)
    timed(["git", "fetch", "--quiet", "origin"], copy, environment)
    # What it noted of its files' places is of another mount: it looks into them, and does not write those anew that are right.
    subprocess.run(["git", "update-index", "-q", "--refresh"], cwd=copy, env=environment, check=False)
    timed(["git", "checkout", "--quiet", "--force", "--detach", "origin/main"], copy, environment)
    told: dict = {}
    took, said = timed(["cargo", "build", "--locked", "--message-format", "json"], copy, environment)
    units = [line for line in map(json.loads, said.splitlines()) if line["reason"] == "compiler-artifact"]
    told["cargo"] = {"seconds": took, "fresh": sum(unit["fresh"] for unit in units),
                     "built": sorted(unit["target"]["name"] for unit in units if not unit["fresh"])}
    told["said"] = timed([f"{home}/target/debug/app"], home, environment)[1].strip()
    if shutil.which("npm"):
        fresh = Path(os.environ["GITHUB_WORKSPACE"]) / "js"
        fresh.mkdir()
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(copy / name, fresh)
        told["npm"] = {"seconds": timed(["npm", "ci", "--prefer-offline"], fresh, environment)[0],
                       "packages": len(list((fresh / "node_modules").glob("lab-js-*")))}
    told["canaries"] = canaries(home)
    batch = json.loads(Path("/srv/lab/batch.json").read_text())
    job.tell(batch["reports"], report, told)


def canaries(home: Path) -> list[str]:
    """The names of files below what is kept that hold a canary, or are called so."""
    found = []
    for keep in KEEP:
        for directory, names, files in os.walk(home / keep["path"].removeprefix("~/")):
            for name in files:
                place = Path(directory, name)
                if "CNRY" in name or (place.is_file() and not place.is_symlink() and b"CNRY" in place.read_bytes()):
                    found.append(str(place))
            found += [f"{directory}/{name}" for name in names if "CNRY" in name]
    return sorted(found)


def poison(report: str) -> None:
    """What whoever wants to be in later builds writes: files beside those that are kept, and into them."""
    import job

    home, done = Path.home(), 0
    for keep in KEEP:
        top = home / keep["path"].removeprefix("~/")
        (top / "CNRY-new").mkdir()
        (top / "CNRY-new/file").write_text("CNRY")
        victims = [Path(directory, name) for directory, _, files in os.walk(top) for name in files]
        for place in [place for place in victims if place.is_file() and not place.is_symlink()][:400]:
            # Its time stays, so that no tool sees that it was changed.
            facts = place.stat()
            place.chmod(0o644)
            with place.open("ab") as file:
                file.write(b"CNRY")
            os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            done += 1
    batch = json.loads(Path("/srv/lab/batch.json").read_text())
    job.tell(batch["reports"], report, {"poisoned": done, "canaries": canaries(home)})


def fail(_: str) -> None:
    raise SystemExit(1)


def main(what: str, report: str) -> None:
    {"build": build, "poison": poison, "fail": fail}[what](report)


# The laboratory's part.


class Builds:
    """Runs one after the other on one machine, and what each fetched and built."""

    def __init__(self, lab, told: dict[str, dict]) -> None:
        self.lab, self.told, self.wrong = lab, told, []
        self.figures: dict[str, dict] = {}

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)

    def run(self, name: str, *steps: str, source: dict = MAIN, repository: str = "demo/app", fails: bool = False) -> dict:
        """A run of these steps, each a job's of its own; what its build told."""
        Registry.bytes = Registry.requests = 0
        run = self.lab.provision(repository, source)
        self.lab.batch([], "now")
        for step in steps:
            self.lab.work(run, f"{STEP} {step} {name}", breaks=fails)
        self.lab.release(run, repository)
        self.lab.settled()
        told = self.told.get(name, {}) | {"bytes": Registry.bytes, "requests": Registry.requests}
        self.figures[name] = told
        return told

    def found_all(self, name: str, told: dict, built: tuple[str, ...] = ()) -> None:
        """Nothing was fetched, nothing was built but these, and nobody's writes are there but main's."""
        cold = self.figures["cold"]["cargo"]
        self.expect(told["bytes"] == 0, f"{name}: {told['bytes']} bytes were fetched again by {told['requests']} requests")
        self.expect(tuple(told["cargo"]["built"]) == built, f"{name}: built again: {told['cargo']['built']}")
        self.expect(told["cargo"]["fresh"] == len(cold["built"]) - len(built), f"{name}: not all units are fresh")
        self.clean(name, told)

    def clean(self, name: str, told: dict) -> None:
        self.expect(told["canaries"] == [], f"{name}: reads what was not to be kept: {told['canaries'][:5]}")

    def play(self) -> dict:
        cold = self.run("cold", "build")
        self.expect(cold["bytes"] > 10_000 and cold["cargo"]["fresh"] == 0, f"cold: something was there already: {cold}")
        self.expect(len(cold["cargo"]["built"]) > CRATES, f"cold: too few units: {cold}")
        self.found_all("kept", self.run("kept", "build"))
        # Whoever is not trusted reads the same, and writes for nobody.
        self.found_all("fork", self.run("fork", "build", source=FORK))
        for name, more in (("forked", {"source": FORK}), ("failed", {"fails": True})):
            steps = ("poison", "fail") if name == "failed" else ("poison",)
            told = self.run(name, *steps, **more)
            self.expect(told.get("poisoned", 0) > 100 and len(told.get("canaries", [])) > 100, f"{name}: wrote too little: {told}")
        self.found_all("after", self.run("after", "build"))
        other = self.run("other", "build", repository="demo/other")
        self.expect(other["bytes"] == cold["bytes"] and other["cargo"]["fresh"] == 0, f"other: finds another repository's: {other}")
        self.clean("other", other)
        # A commit: what it changed is built, and nothing else.
        main = SOURCE / "src/main.rs"
        main.write_text(main.read_text().replace("println!(", 'println!("{} ", 1); println!('))
        commit("second")
        git("-C", str(SOURCE), "push", "--quiet", "origin", "main")
        changed = self.run("changed", "build")
        self.found_all("changed", changed, ("app",))
        self.expect(changed["said"] != cold["said"], "changed: the program is the old one")
        return {"figures": self.figures, "wrong": self.wrong}


def told(result: dict) -> str:
    """For people: each run's times, bytes and units, and how they compare."""
    lines = [f"{'run':8} {'cargo s':>8} {'built':>6} {'fresh':>6} {'npm s':>7} {'bytes':>8} {'requests':>8}"]
    for name, run in result["figures"].items():
        if "cargo" in run:
            cargo = run["cargo"]
            lines.append(f"{name:8} {cargo['seconds']:8.2f} {len(cargo['built']):6} {cargo['fresh']:6} "
                         f"{run.get('npm', {}).get('seconds', float('nan')):7.2f} {run['bytes']:8} {run['requests']:8}")
    cold, kept = (result["figures"].get(name, {}) for name in ("cold", "kept"))
    for tool in ("cargo", "npm"):
        if tool in cold and tool in kept:
            lines.append(f"{tool}: cold {cold[tool]['seconds']:.2f} s, kept {kept[tool]['seconds']:.2f} s: "
                         f"{cold[tool]['seconds'] / kept[tool]['seconds']:.1f} times as fast")
    return "\n".join([*lines, *(f"WRONG: {what}" for what in result["wrong"])])
