# The part of a yard that is in your account: table, queues, roles, network. README.md beside this file shows how to use it.

terraform {
  required_version = ">= 1.5"
}

variable "region" {
  type        = string
  description = "Where machines run."
}

variable "github_owner" {
  type        = string
  description = "The organisation or user whose workflows ask for machines, spelt as GitHub spells it."
}

variable "github_owner_id" {
  type        = string
  description = "The owner's number: gh api users/OWNER --jq .id"
}

variable "vpc_id" {
  type        = string
  description = "The network of the machines."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Their subnets, each with a way out on port 443."
}

provider "aws" {
  region = var.region
}

module "runyard" {
  source = "git::https://github.com/OWNER/runyard.git//config/terraform?ref=COMMIT"

  # The pools of pools.yaml, each of which gets its queue.
  classes              = ["small", "large"]
  github_owner         = var.github_owner
  github_owner_id      = var.github_owner_id
  github_oidc_provider = "create"
  vpc_id               = var.vpc_id
  subnet_ids           = var.subnet_ids
}

# What `runyard apply --stack-outputs` reads, to complete the pools.

output "table" {
  value = module.runyard.table
}

output "machine_profile" {
  value = module.runyard.machine_profile
}

output "subnet_ids" {
  value = module.runyard.subnet_ids
}

output "machine_security_group" {
  value = module.runyard.machine_security_group
}

# The role that workflows assume: their variable RUNYARD_ROLE.
output "workflow_role" {
  value = module.runyard.workflow_role
}
