#!/bin/sh
# First boot. The image brings /usr/local/bin/runyard-agent, nft or iptables, and systemd.
set -eu
umask 077
exec >>/var/log/runyard-first-boot.log 2>&1
# A machine nobody can use must not stay: its shutdown ends it.
trap '[ $? -eq 0 ] || systemctl poweroff' EXIT
mkdir -p /etc/runyard
cd /etc/runyard
cat >agent.toml <<'@@END-OF-AGENT'
@@AGENT
@@END-OF-AGENT
cat >pre-runner.sh <<'@@END-OF-PRE-RUNNER'
@@PRE-RUNNER
@@END-OF-PRE-RUNNER
runyard-agent install --config agent.toml
