# A yard in an account: everything that the operator needs, and the role that workflows take. Replace OWNER and COMMIT by the
# repository that you take Runyard from, and the rest by what is yours. Afterwards:
#
#   terraform output -json runyard | jq 'map_values({value: .})' | runyard apply --stack-outputs - -f pools.yaml
module "runyard" {
  source               = "git::https://github.com/OWNER/runyard.git//config/terraform?ref=COMMIT"
  github_owner         = "acme"
  github_owner_id      = "123456" # gh api users/acme --jq .id
  github_oidc_provider = "create"
  vpc_id               = "vpc-0123456789abcdef0"
  subnet_ids           = ["subnet-0123456789abcdef0"]
}

output "runyard" {
  value = module.runyard
}
