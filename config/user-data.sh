#!/bin/sh
# First boot. The image brings systemd and, unless it is fetched, /usr/local/bin/runyard-agent.
set -eu
umask 077
# The console is what EC2 keeps of a machine that is gone.
say() { { echo "runyard: $*" >/dev/console; } 2>/dev/null || echo "runyard: $*"; }
# A machine nobody can use must not stay: its shutdown ends it.
ended() {
  code=$?
  [ $code -ne 0 ] || exit 0
  say "powers off: first boot failed while it $step ($code)"
  systemctl poweroff
}
trap ended EXIT
step='wrote its configuration'
mkdir -p /etc/runyard
cd /etc/runyard
cat >agent.toml <<'@@END-OF-AGENT'
@@AGENT
@@END-OF-AGENT
cat >agent.env <<'@@END-OF-ENVIRONMENT'
@@ENVIRONMENT
@@END-OF-ENVIRONMENT
cat >pre-runner.sh <<'@@END-OF-PRE-RUNNER'
@@PRE-RUNNER
@@END-OF-PRE-RUNNER
set -a
# shellcheck disable=SC1091 # it was written above
. ./agent.env
set +a
# What of this a stock image lacks: the rules need nft, GitHub's runner libicu, its checkout git.
icu() { ldconfig -p | grep -q libicuuc; }
lacks=
command -v nft >/dev/null || command -v iptables >/dev/null || lacks='nftables '
command -v git >/dev/null || lacks="${lacks}git "
icu || lacks="${lacks}libicu "
# shellcheck disable=SC2086 # they are words
install_lacking() (
  umask 022
  command -v apt-get >/dev/null || exec dnf -q -y install $lacks
  # What a stock image updates by itself at first boot holds the locks: of packages, for which apt waits as long as it is
  # told, and of lists, for which it does not.
  for wait in 5 10 20 40 -; do
    apt-get -qq update && {
      # Its name has its version.
      icu || names="${lacks%libicu }$(apt-cache pkgnames libicu | grep -E '^libicu[0-9]+$' | sort | tail -n 1)"
      DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install ${names:-$lacks}
    } && exit
    [ $wait != - ] || exit
    sleep $wait
  done
)
if [ -n "$lacks" ]; then
  say "first boot installs ${lacks}which the image lacks"
  install_lacking || say "first boot could not install ${lacks}and goes on without"
fi
# The agent of this address and SHA-256, unless the image has it. Python is cloud-init's.
fetch() {
  step='fetched the agent'
  file=/usr/local/bin/runyard-agent
  ! digest $file "$2" || return 0
  say 'first boot fetches the agent'
  for wait in 1 2 4 8 16 32 -; do
    python3 -c 'import sys,urllib.request as r
with r.urlopen(sys.argv[1],timeout=60) as a,open(sys.argv[2],"wb") as f:
  while b:=a.read(1<<20):f.write(b)' "$1" $file.new && break
    [ $wait != - ] || { say "the first boot failed: the agent cannot be had from $1"; exit 1; }
    sleep $wait
  done
  digest $file.new "$2" || { say "the first boot failed: the agent from $1 has not the SHA-256 $2"; exit 1; }
  chmod 755 $file.new
  mv $file.new $file
}
digest() { echo "$2  $1" | sha256sum -c --status - 2>/dev/null; }
@@FETCH
step='installed the agent'
say 'first boot installs the agent'
runyard-agent install --config agent.toml
