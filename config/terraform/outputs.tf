# What `runyard apply --stack-outputs` reads (examples/terraform), and what is named elsewhere.

output "table" {
  description = "The operator's table, and --table of commands"
  value       = aws_dynamodb_table.table.name
}

output "subnet_ids" {
  description = "The pools' launch.subnetIds"
  value       = var.subnet_ids
}

output "machine_security_group" {
  description = "The pools' launch.securityGroupIds"
  value       = one(aws_security_group.machine[*].id)
}

output "machine_profile" {
  description = "The pools' launch.instanceProfile"
  value       = aws_iam_instance_profile.machine.name
}

output "interruptions_queue" {
  description = "The operator's interruptions.queue"
  value       = aws_sqs_queue.queue["interruptions"].name
}

output "operator_logs" {
  description = "The operator's log"
  value       = one(aws_cloudwatch_log_group.operator[*].name)
}

output "operator_security_group" {
  description = "The operator's, which nothing reaches until a rule lets Prometheus to port 8080"
  value       = one(aws_security_group.operator[*].id)
}

output "operator_policy" {
  description = "For the operator's role"
  value       = aws_iam_policy.operator.arn
}

output "operator_volume_key_policy" {
  description = "For the operator's role too"
  value       = one(aws_iam_policy.operator_volume_key[*].arn)
}

output "init_policy" {
  description = "For whoever runs `runyard init` and `runyard apply`"
  value       = aws_iam_policy.init.arn
}

output "workflow_policy" {
  description = "For workflows"
  value       = aws_iam_policy.workflow.arn
}

output "reader_policy" {
  description = "For people who only look"
  value       = aws_iam_policy.reader.arn
}

output "operator_role" {
  description = "To associate with the operator's service account, runyard"
  value       = one(aws_iam_role.operator[*].arn)
}

output "init_role" {
  description = "To associate with the setup Jobs' service account, runyard-setup"
  value       = one(aws_iam_role.init[*].arn)
}

output "workflow_role" {
  description = "The role that workflows assume, RUNYARD_ROLE in examples/gang.yml"
  value       = one(aws_iam_role.workflow[*].arn)
}

output "jobs_webhook_url" {
  description = "The address of GitHub's webhook"
  value       = var.jobs_webhook ? "${aws_apigatewayv2_api.jobs[0].api_endpoint}/github" : null
}
