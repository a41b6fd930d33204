# Images of machines for both architectures. README.md beside this file shows how to build them.

packer {
  required_version = ">= 1.9"
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3"
    }
  }
}

variable "region" {
  type        = string
  description = "Where the images are built and kept."
}

variable "programs" {
  type        = string
  description = "The directory with runyard-agent-linux-x86_64 and runyard-agent-linux-aarch64 of a release, verified."
}

variable "base" {
  type        = string
  default     = "ubuntu-24.04"
  description = "ubuntu-24.04 or al2023."
  validation {
    condition     = contains(["ubuntu-24.04", "al2023"], var.base)
    error_message = "The base is ubuntu-24.04 or al2023."
  }
}

variable "packages" {
  type        = list(string)
  default     = []
  description = "What your jobs need besides, as the base's package manager names it. Jobs cannot install packages."
}

variable "tools" {
  type        = bool
  default     = false
  description = "Whether the packages of the list `tools` are installed, of what workflows expect of GitHub's image. Ubuntu only."
}

variable "runner" {
  type        = string
  default     = ""
  description = "GitHub's runner package on the machine that builds, uploaded by a provisioner of yours; none if empty."
}

variable "subnet_id" {
  type        = string
  default     = null
  description = "A subnet with a way out; the default VPC's if not given."
}

variable "kms_key_id" {
  type        = string
  default     = null
  description = "The key that encrypts the images; the account's default key if not given."
}

locals {
  bases = {
    "ubuntu-24.04" = {
      owner = "099720109477" # Canonical
      user  = "ubuntu"
      names = {
        x86_64  = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"
        aarch64 = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-*"
      }
    }
    "al2023" = {
      owner = "137112412989" # Amazon
      user  = "ec2-user"
      names = {
        x86_64  = "al2023-ami-2023.*-kernel-6.1-x86_64"
        aarch64 = "al2023-ami-2023.*-kernel-6.1-arm64"
      }
    }
  }
  chosen = local.bases[var.base]
  now    = timestamp()
  stamp  = formatdate("YYYYMMDD-hhmm", local.now)
}

source "amazon-ebs" "machine" {
  region                  = var.region
  subnet_id               = var.subnet_id
  ssh_username            = local.chosen.user
  temporary_key_pair_type = "ed25519"

  # The key that Packer makes is on no machine of the image.
  ssh_clear_authorized_keys = true

  # The machine that builds, as machines of a yard are: no IMDSv1.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  # The images: encrypted, IMDSv2 only, out of use after 90 days so that nobody forgets to renew them.
  encrypt_boot = true
  kms_key_id   = var.kms_key_id
  imds_support = "v2.0"
  ena_support  = true
  deprecate_at = timeadd(local.now, "2160h")
}

build {
  source "amazon-ebs.machine" {
    name          = "x86_64"
    instance_type = "m7i.large"
    ami_name      = "runyard-machine-x86_64-${var.base}-${local.stamp}"
    source_ami_filter {
      owners      = [local.chosen.owner]
      most_recent = true
      filters = {
        name                = local.chosen.names.x86_64
        root-device-type    = "ebs"
        virtualization-type = "hvm"
      }
    }
  }

  source "amazon-ebs.machine" {
    name          = "aarch64"
    instance_type = "m7g.large"
    ami_name      = "runyard-machine-aarch64-${var.base}-${local.stamp}"
    source_ami_filter {
      owners      = [local.chosen.owner]
      most_recent = true
      filters = {
        name                = local.chosen.names.aarch64
        root-device-type    = "ebs"
        virtualization-type = "hvm"
      }
    }
  }

  provisioner "file" {
    source      = "${path.root}/tools"
    destination = "/tmp/runyard-tools"
  }

  provisioner "file" {
    source      = "${var.programs}/runyard-agent-linux-${source.name}"
    destination = "/tmp/runyard-agent"
  }

  provisioner "shell" {
    script          = "${path.root}/recipe"
    execute_command = "chmod +x {{ .Path }}; sudo env {{ .Vars }} {{ .Path }}"
    environment_vars = [
      "AGENT=/tmp/runyard-agent",
      "PACKAGES=${join(" ", var.packages)}",
      "TOOLS=${var.tools ? "/tmp/runyard-tools" : ""}",
      "RUNNER=${var.runner}",
    ]
  }

  # The ids, for pools.yaml.
  post-processor "manifest" {
    output = "images.json"
  }
}
