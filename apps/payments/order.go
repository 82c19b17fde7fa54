package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The limits of an order.
const (
	maxLines    = 50
	maxQuantity = 1_000_000
)

// orderInput is what a merchant asks for.
type orderInput struct {
	Lines []orderLine `json:"lines"`
}

// orderLine is a product and how many of it.
type orderLine struct {
	Product   string `json:"product"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price,omitempty"`
}

// readOrder reads an order's request by pure syntax.
func readOrder(r *http.Request, body []byte) (orderInput, error) {
	o, fault := readBody(r, body)
	if fault != nil {
		return orderInput{}, fault
	}
	lines, err := readLines(o)
	if err != nil {
		return orderInput{}, err
	}
	return orderInput{Lines: lines}, o.done()
}

// readLines reads the products of an order.
func readLines(o *object) ([]orderLine, error) {
	var lines []orderLine
	for i, item := range o.list("lines", maxLines) {
		line := orderLine{Product: item.text("product", 1, 100), Quantity: item.integer("quantity", 1, maxQuantity)}
		if err := item.done(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(lines, func(l orderLine) bool { return l.Product == line.Product }) {
			return nil, fieldProblem(fmt.Sprintf("lines/%d/product", i), "stands in a line above; add the quantities up")
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// order is an order as merchants see it.
type order struct {
	ID        string         `json:"id"`
	Status    string         `json:"status"`
	Total     int64          `json:"total"`
	Currency  money.Currency `json:"currency"`
	Lines     []orderLine    `json:"lines"`
	Charge    string         `json:"charge,omitempty"`
	CreatedAt time.Time      `json:"created_at"`

	seq   int64
	asked string
}

// The states of an order. Those of a checkout begin pending, and end paid,
// declined or cancelled; others begin open, and end paid.
const (
	orderOpen      = "open"
	orderPending   = "pending"
	orderPaid      = "paid"
	orderDeclined  = "declined"
	orderCancelled = "cancelled"
)

// createOrder takes the stock and writes the order, in the transaction of its
// key and answer.
func (s *Service) createOrder(ctx context.Context, tx db.Tx, in orderInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	earlier, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
	switch {
	case err == nil && earlier.asked != in.text():
		return answerOf(keyReused(op, earlier.ID)), nil
	case err == nil:
		// The key has expired, the order has not.
		err = earlier.readLines(ctx, tx, op.merchant)
		return created("/orders/"+earlier.ID, earlier), err
	case !errors.Is(err, db.ErrNoRows):
		return onlyonce.Answer{}, fmt.Errorf("look for earlier order: %w", err)
	}
	o, refusal, err := s.place(ctx, tx, placing{
		merchant: op.merchant, operation: op.reference, id: newID("ord_"), status: orderOpen, lines: in.Lines, asked: in.text(),
	})
	if refusal != nil || err != nil {
		return answerOf(refusal), err
	}
	return created("/orders/"+o.ID, o), nil
}

// text is what is compared to tell orders apart.
func (in orderInput) text() string { return textOf(in) }

// textOf is an input as it is compared.
func textOf(in any) string {
	text, err := json.Marshal(in)
	if err != nil {
		return "" // strings and numbers
	}
	return string(text)
}

// placing is an order about to be written. operation is empty for one that its
// client has named, key for all but a checkout's.
type placing struct {
	merchant, operation, key string
	id, status, asked        string
	lines                    []orderLine
}

// place takes the stock of all lines, or refuses and changes nothing. Products
// are locked in order of their ids, so that no two orders wait for each other.
func (s *Service) place(ctx context.Context, tx db.Tx, p placing) (order, *onlyonce.Answer, error) {
	o := order{ID: p.id, Status: p.status, Lines: slices.Clone(p.lines), CreatedAt: s.now()}
	sorted := byProduct(o.Lines)
	for _, i := range sorted {
		refusal, err := o.check(ctx, tx, p.merchant, i)
		if refusal != nil || err != nil {
			return order{}, refusal, err
		}
	}
	for _, i := range sorted {
		_, err := tx.Exec(ctx, `UPDATE payments_products SET stock = stock - ? WHERE merchant = ? AND id = ?`,
			o.Lines[i].Quantity, p.merchant, o.Lines[i].Product)
		if err != nil {
			return order{}, nil, fmt.Errorf("take stock: %w", err)
		}
	}
	return o, nil, p.insert(ctx, tx, o)
}

// byProduct is the order in which the products of lines are locked.
func byProduct(lines []orderLine) []int {
	sorted := make([]int, len(lines))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return strings.Compare(lines[a].Product, lines[b].Product) })
	return sorted
}

// check locks a line's product and looks at it.
func (o *order) check(ctx context.Context, tx db.Tx, merchant string, i int) (*onlyonce.Answer, error) {
	line := &o.Lines[i]
	var currency string
	var stock int64
	// An update that changes nothing locks the row, in either database.
	err := tx.QueryRow(ctx, `UPDATE payments_products SET stock = stock WHERE merchant = ? AND id = ? RETURNING price, currency, stock`,
		merchant, line.Product).Scan(&line.UnitPrice, &currency, &stock)
	field := fmt.Sprintf("lines/%d/", i)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return refused(with(problem(codeUnknownProduct, "There is no product "+line.Product+"."), "field", field+"product")), nil
	case err != nil:
		return nil, fmt.Errorf("find product: %w", err)
	case o.Currency != "" && string(o.Currency) != currency:
		return refused(with(problem(codeMixedCurrencies, "The products have prices in "+string(o.Currency)+" and "+currency+"."), "field", field+"product")), nil
	case stock < line.Quantity:
		p := with(problem(codeOutOfStock, fmt.Sprintf("Of %s, %d are left.", line.Product, stock)), "field", field+"quantity")
		return refused(with(with(p, "product", line.Product), "available", stock)), nil
	case line.UnitPrice > (processor.MaxAmount-o.Total)/line.Quantity:
		return refused(with(problem(codeOrderTooLarge, "The total is over the largest amount of a charge."), "field", field+"quantity")), nil
	}
	o.Currency = money.Currency(currency)
	o.Total += line.UnitPrice * line.Quantity
	return nil, nil
}

func (p placing) insert(ctx context.Context, tx db.Tx, o order) error {
	_, err := tx.Exec(ctx, `INSERT INTO payments_orders (id, merchant, operation, asked, status, currency, total, checkout_key, created_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		o.ID, p.merchant, orNull(p.operation), p.asked, o.Status, string(o.Currency), o.Total, orNull(p.key), o.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("insert order: %w", err)
	}
	for i, line := range o.Lines {
		_, err := tx.Exec(ctx, `INSERT INTO payments_order_lines (merchant, order_id, line, product, quantity, unit_price)
			VALUES (?, ?, ?, ?, ?, ?)`, p.merchant, o.ID, i, line.Product, line.Quantity, line.UnitPrice)
		if err != nil {
			return fmt.Errorf("insert line of order: %w", err)
		}
	}
	return nil
}

// clientOrderID is what clients may call their orders; ord_ is ours.
var clientOrderID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// putOrder makes the order that its client has named. The name makes it
// idempotent: the same order again is the same order, another one is refused.
func (s *Service) putOrder(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !clientOrderID.MatchString(id) || strings.HasPrefix(id, "ord_") {
		refuse(w, fieldProblem("id", "must have 1 to 64 letters, digits, points, _ and -, and not begin with ord_"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		refuse(w, problem(codeTooLarge, fmt.Sprintf("The body is over %d bytes.", maxBody)))
		return
	}
	var in orderInput
	if err == nil {
		in, err = readOrder(r, body)
	}
	if err != nil {
		fault, ok := errors.AsType[*oncehttp.Problem](err)
		if !ok {
			fault = fieldProblem("body", "did not arrive whole")
		}
		refuse(w, fault)
		return
	}
	answer, err := s.putOnce(context.WithoutCancel(r.Context()), id, in)
	if err != nil {
		s.broken(w, r, fmt.Errorf("put order: %w", err))
		return
	}
	send(w, answer)
}

// errRefuse rolls a transaction back because of what was found in it.
var errRefuse = errors.New("refused")

// putOnce writes the order or finds it written. Two that come at once meet at
// the unique name: one writes, the other finds.
func (s *Service) putOnce(ctx context.Context, id string, in orderInput) (onlyonce.Answer, error) {
	p := placing{merchant: merchantOf(ctx), id: id, status: orderOpen, lines: in.Lines, asked: in.text()}
	var answer onlyonce.Answer
	err := s.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		n, err := tx.Exec(ctx, `INSERT INTO payments_order_names (merchant, id) VALUES (?, ?) ON CONFLICT (merchant, id) DO NOTHING`, p.merchant, p.id)
		if err != nil {
			return fmt.Errorf("take name: %w", err)
		}
		if n == 0 {
			answer, err = sameOrder(ctx, tx, p)
			return err
		}
		o, refusal, err := s.place(ctx, tx, p)
		if err != nil {
			return err
		}
		if refusal != nil {
			answer = *refusal
			return errRefuse
		}
		answer = created("/orders/"+id, o)
		return nil
	})
	if errors.Is(err, errRefuse) {
		err = nil
	}
	return answer, err
}

// sameOrder answers with the order that stands under a name, if it is the same.
func sameOrder(ctx context.Context, tx db.Tx, p placing) (onlyonce.Answer, error) {
	o, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND id = ?", p.merchant, p.id))
	if err != nil {
		return onlyonce.Answer{}, fmt.Errorf("find order: %w", err)
	}
	if o.asked != p.asked {
		return problem(codeOrderExists, "There is another order under the id "+p.id+".").Answer(), nil
	}
	if err := o.readLines(ctx, tx, p.merchant); err != nil {
		return onlyonce.Answer{}, err
	}
	return oncehttp.JSON(http.StatusOK, o), nil
}
