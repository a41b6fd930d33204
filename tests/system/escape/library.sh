# For every script of a plant: $C is its canary, $H the account's own home, $R the runner's directory.
lacking() { echo "$*"; exit 77; }
N=${N:-$(id -un)}
H=$(getent passwd "$N" | cut -d: -f6)
R=${GITHUB_WORKSPACE%/_work/*}
# With nothing of the job's environment, by which the runner finds what a job leaves.
T="env -i PATH=$PATH C=$C /usr/bin/python3 -I /srv/lab/tests/tools.py"
# Leaves a process behind that has shed what could tell whose it is.
stay() { (cd / && exec env -i PATH="$PATH" setsid "$@" </dev/null >/dev/null 2>&1) & sleep 0.3; }
# Whether a script in the runner's directory changes a program that all claims share.
programs() { (cd "$R" && find bin externals -type f 2>/dev/null | sort | xargs -r sha256sum); }
changed() {
  local before
  before=$(programs)
  test -n "$before" || lacking "no programs"
  (cd "$R" && bash -c "$1") || true
  test "$before" != "$(programs)"
}
# A process by any of its threads: the words of one whose first thread has ended are empty.
threads() {
  for thread in /proc/[0-9]*/task/[0-9]*; do
    if grep -qa "$C" "$thread/cmdline" 2>/dev/null; then echo "$thread"; return 0; fi
  done
  return 1
}
key() {
  mkdir -p "$H/.ssh" && chmod 700 "$H/.ssh"
  test -f "$H/.ssh/lab" || ssh-keygen -q -t ed25519 -N '' -f "$H/.ssh/lab"
  cp "$H/.ssh/lab.pub" "$H/.ssh/authorized_keys"
}
# The address at which this machine's sshd answers, be it the far end of the job's own link.
machine() {
  for address in 127.0.0.1 $(ip route 2>/dev/null | sed -n 's/^default via \([0-9.]*\).*/\1/p') 198.51.100.1; do
    if timeout 2 bash -c "exec 3<>/dev/tcp/$address/22" 2>/dev/null; then echo "$address"; return; fi
  done
  echo 127.0.0.1
}
by_ssh() {
  key
  env -i PATH="$PATH" HOME="$H" ssh -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -i "$H/.ssh/lab" \
    "$@"
}
# In a session of sshd's: root of a user namespace that maps the account's subordinate ids as well.
subordinate() { by_ssh "$N@$(machine)" "$T forget; C='$C' H='$H' T='$T' unshare --user --map-auto --map-root-user bash -ec '$1'"; }
# A job may do this only where the image is wrong.
must_not() { if "$@"; then echo "it may: $*"; else exit 1; fi; }
# The image of every container, made here once for a claim: none can be fetched.
busybox() {
  docker image inspect lab:1 >/dev/null 2>&1 && return
  B=$(mktemp -d) && chmod 755 "$B" && mkdir -p "$B/bin" "$B/tmp" "$B/etc" && chmod 1777 "$B/tmp"
  test -x /usr/bin/busybox || lacking busybox-static
  cp /usr/bin/busybox "$B/bin/"
  for name in sh ls cat echo sleep id wget nc httpd mkdir touch chmod chown cp mount mknod dd ip ps stat grep true false sysctl test tail env rm; do
    ln -s busybox "$B/bin/$name"
  done
  echo 'root:x:0:0::/:/bin/sh' >"$B/etc/passwd"
  tar -C "$B" --owner 0 --group 0 --numeric-owner -cf - . | docker import - lab:1 >/dev/null
  rm -rf "$B"
}
# Products of others that call the engine, as they come from PyPI.
PRODUCT="env PYTHONPATH=/usr/local/lab-python /usr/bin/python3"
# What a container's root wrote is the job's where that is root's place in the container, and root's where it is root.
own() { if test "${CONTAINER_HOST:-}"; then test -O "$1"; else test -e "$1"; fi; }
# A container that is gone when it has done its work.
inside() { busybox && docker run --rm "$@"; }
# One that stays.
stays() { busybox && docker run -d "$@"; }
# As root: a service that answers on this socket, as an engine of another claim would.
other() {
  env -i PATH="$PATH" setsid python3 -c 'import os, socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nanother claim")
server = socketserver.UnixStreamServer(sys.argv[1], Answer)
os.chmod(sys.argv[1], 0o666)
server.serve_forever()' "$1" </dev/null >/dev/null 2>&1 &
  for _ in $(seq 50); do
    if curl -sf --unix-socket "$1" http://d/ | grep -q 'another claim'; then return 0; fi
    sleep 0.1
  done
  return 1
}
# What is no success here is none with Docker either, or is what the table says.
must_refuse() { if "$@"; then echo "it succeeds: $*"; return 1; else return 0; fi; }
# A call of Docker's API.
api() { curl -sf --unix-socket /var/run/docker.sock -H "Content-Type: application/json" "http://d/v1.41/$1" "${@:2}"; }
# Docker's own command, beside the engine's.
for OWN in /usr/bin/docker /usr/local/bin/docker; do if test -x "$OWN"; then break; fi; done
