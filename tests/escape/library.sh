# For every script of a plant: $C is its canary, $H the account's own home, $R the runner's directory.
lacking() { echo "$*"; exit 77; }
N=${N:-$(id -un)}
H=$(getent passwd "$N" | cut -d: -f6)
R=${GITHUB_WORKSPACE%/_work/*}
T="/usr/bin/python3 -I /srv/lab/tests/tools.py"
# Leaves a process behind that has shed what could tell whose it is.
stay() { (cd / && exec env -i PATH="$PATH" setsid "$@" </dev/null >/dev/null 2>&1) & sleep 0.3; }
# The same, but dead on arrival is told.
stays() { stay "$@"; kill -0 $! 2>/dev/null || { "$@" </dev/null; exit 1; }; }
key() {
  mkdir -p "$H/.ssh" && chmod 700 "$H/.ssh"
  test -f "$H/.ssh/lab" || ssh-keygen -q -t ed25519 -N '' -f "$H/.ssh/lab"
  cp "$H/.ssh/lab.pub" "$H/.ssh/authorized_keys"
}
by_ssh() {
  key
  ssh -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -i "$H/.ssh/lab" \
    "$@"
}
# In a session of sshd's: root of a user namespace that maps the account's subordinate ids as well.
subordinate() { by_ssh "$N@127.0.0.1" "$T forget; C='$C' T='$T' unshare --user --map-auto --map-root-user bash -ec '$1'"; }
# A job may do this only where the image is wrong.
must_not() { if "$@"; then echo "it may: $*"; else exit 1; fi; }
