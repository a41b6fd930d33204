#!/bin/sh
# First boot of a machine: says which machine it is, writes its agent's configuration, and starts the agent. The image
# brings /usr/local/bin/runyard-agent, curl and systemd. The operator replaces the
# lines that begin with @@; nothing secret stands here, for jobs can read user data.
set -eu
umask 022
exec >>/var/log/runyard-first-boot.log 2>&1
# Whatever fails below, a machine nobody can use must not stay: its shutdown terminates it.
trap '[ $? -eq 0 ] || systemctl poweroff' EXIT

imds=http://169.254.169.254/latest
token=$(curl -fsS --retry 10 --retry-connrefused -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$imds/api/token")
fact() { curl -fsS --retry 10 --retry-connrefused -m 5 -H "X-aws-ec2-metadata-token: $token" "$imds/$1"; }
id=$(fact meta-data/instance-id)
region=$(fact meta-data/placement/region)
partition=$(fact meta-data/services/partition)
account=$(fact dynamic/instance-identity/document | sed -n 's/.*"accountId" *: *"\([0-9]*\)".*/\1/p')

id -u runner >/dev/null 2>&1 || useradd --create-home --shell /bin/bash runner
mkdir -p /etc/runyard /var/lib/runyard
chmod 700 /etc/runyard
{
  printf 'instance_id = "%s"\n' "$id"
  printf 'instance_arn = "arn:%s:ec2:%s:%s:instance/%s"\n' "$partition" "$region" "$account" "$id"
  cat <<'@@END-OF-AGENT'
@@AGENT
@@END-OF-AGENT
} >/etc/runyard/agent.toml
cat >/etc/runyard/pre-runner.sh <<'@@END-OF-PRE-RUNNER'
@@PRE-RUNNER
@@END-OF-PRE-RUNNER
chmod 700 /etc/runyard/pre-runner.sh

# Jobs must not take the machine's role: only root reaches the metadata service.
if command -v nft >/dev/null; then
  nft -f - <<'RULES'
table inet runyard {
  chain output {
    type filter hook output priority 0; policy accept;
    meta skuid != 0 ip daddr 169.254.169.254 drop
    meta skuid != 0 ip6 daddr fd00:ec2::254 drop
  }
}
RULES
elif command -v iptables >/dev/null; then
  iptables -I OUTPUT -d 169.254.169.254 -m owner ! --uid-owner 0 -j DROP
else
  echo 'neither nft nor iptables: jobs could take the role of this machine' && exit 1
fi

# An agent that cannot be kept alive ends the machine.
cat >/etc/systemd/system/runyard-agent.service <<UNIT
[Unit]
Description=Keeps this machine's GitHub Actions runner
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=20
StartLimitAction=poweroff-force

[Service]
Environment=AWS_REGION=$region
ExecStart=/usr/local/bin/runyard-agent --config /etc/runyard/agent.toml
RuntimeDirectory=runyard
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=restart
KillMode=process
OOMScoreAdjust=-900
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable --now runyard-agent.service
