{{/* Services that the generators ask for verdicts, as {"asked": [...]} by their place in config.tasks.verifiers. What is no map is
refused by the run file's own rules. */}}
{{- define "rollcast.verifiers" -}}
{{- $tasks := kindIs "map" .Values.config.tasks | ternary .Values.config.tasks dict -}}
{{- $asked := list -}}
{{- range $index, $verifier := kindIs "slice" $tasks.verifiers | ternary $tasks.verifiers list -}}
{{- if kindIs "map" $verifier -}}
{{- if kindIs "string" $verifier.url -}}
{{- $port := include "rollcast.portOf" $verifier.url | int -}}
{{- $asked = append $asked (dict "index" $index "port" $port "variable" (toString ($verifier.token_variable | default ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "asked" $asked | toJson -}}
{{- end -}}

{{/* The port of a web address. */}}
{{- define "rollcast.portOf" -}}
{{- $address := regexReplaceAll "^https?://" . "" -}}
{{- $port := hasPrefix "https:" . | ternary 443 80 -}}
{{- if regexMatch "^[^/?#]*:[0-9]{1,5}([/?#]|$)" $address -}}
{{- $port = regexReplaceAll "^[^/?#]*:([0-9]+).*$" $address "${1}" -}}
{{- end -}}
{{- $port -}}
{{- end -}}
