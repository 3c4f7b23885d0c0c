package sqlstore

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
)

// jsonOf writes columns of rows as an array of arrays.
func jsonOf(places []int, rows [][]any) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('[')
		for k, c := range places {
			if k > 0 {
				b.WriteByte(',')
			}
			switch v := r[c].(type) {
			case nil:
				b.WriteString("null")
			case int64:
				b.WriteString(strconv.FormatInt(v, 10))
			case string:
				text, _ := json.Marshal(v)
				b.Write(text)
			case []byte:
				b.WriteByte('"')
				hex.NewEncoder(&b).Write(v)
				b.WriteByte('"')
			}
		}
		b.WriteByte(']')
	}
	b.WriteByte(']')
	return b.String()
}
